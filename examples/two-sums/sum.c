/* Add up a table, ROUNDS times. SLOW adds one addition in ten twice: the planted slow-down of the example's test. */
#include <stdint.h>
#include <stdio.h>

#ifndef ROUNDS
#define ROUNDS 60000
#endif
#ifndef SLOW
#define SLOW 0
#endif
#define ITEMS 4096

static uint32_t table[ITEMS];

static uint64_t add(void) {
  uint64_t sum = 0;
  for (int i = 0; i < ITEMS; i++) sum = sum * 31 + table[i];
  return sum;
}

int main(void) {
  uint64_t sum = 0;
  for (uint32_t i = 0; i < ITEMS; i++) table[i] = i * 2654435761u;
  for (int round = 0; round < ROUNDS; round++) {
    sum ^= add();
    if (SLOW && round % 10 == 0) sum ^= add();
    table[round % ITEMS] += (uint32_t)sum;
  }
  printf("%llu\n", (unsigned long long)sum);
  return 0;
}
