/* Two ways to add up a table, in one program that takes turns: one load of the table serves both. */
#include <stdint.h>

#include "kakeya_marks.h"

#define ITEMS 65536
#define ROUNDS 600

static uint32_t table[ITEMS];
static volatile uint64_t kept;

static void one_by_one(long sample) {
  uint64_t sum = (uint64_t)sample;
  for (int round = 0; round < ROUNDS; round++)
    for (int i = 0; i < ITEMS; i++) sum = sum * 31 + table[i];
  kept = sum;
}

static void four_at_a_time(long sample) {
  uint64_t sums[4] = {(uint64_t)sample, 0, 0, 0};
  for (int round = 0; round < ROUNDS; round++)
    for (int i = 0; i < ITEMS; i += 4)
      for (int lane = 0; lane < 4; lane++) sums[lane] = sums[lane] * 31 + table[i + lane];
  kept = sums[0] + sums[1] + sums[2] + sums[3];
}

int main(void) {
  for (uint32_t i = 0; i < ITEMS; i++) table[i] = i * 2654435761u;
  one_by_one(0);
  four_at_a_time(0);
  return kakeya_take_turns(one_by_one, four_at_a_time, 4);
}
