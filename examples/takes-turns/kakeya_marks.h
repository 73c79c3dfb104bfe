/* Let a Kakeya runner say which of two sides of a program works next: docs/turns.md in C, what kakeya_marks.py is in
   Python. A side is a function of a sample's number, from 0, that returns when all its work is done. */
#ifndef KAKEYA_MARKS_H
#define KAKEYA_MARKS_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

typedef void (*kakeya_side)(long sample);

static double kakeya_now(void) {
  struct timespec at;
  clock_gettime(CLOCK_MONOTONIC, &at);
  return (double)at.tv_sec + 1e-9 * (double)at.tv_nsec;
}

/* The number after "KEY": in a line of the runner's, -1 where it says null. The runner writes no spaces. */
static double kakeya_number(const char *line, const char *key) {
  char word[32];
  snprintf(word, sizeof word, "\"%s\":", key);
  const char *at = strstr(line, word);
  if (at == NULL || strncmp(at + strlen(word), "null", 4) == 0) return -1.0;
  return strtod(at + strlen(word), NULL);
}

/* Work when the runner says so; 0 when it says that the launch is over, 1 when nobody hands out turns. */
static int kakeya_take_turns(kakeya_side baseline, kakeya_side candidate, int samples) {
  const char *numbers[2] = {getenv("KAKEYA_TURN_ORDERS"), getenv("KAKEYA_TURN_ANSWERS")};
  FILE *orders = numbers[0] == NULL ? NULL : fdopen(atoi(numbers[0]), "r");
  FILE *answers = numbers[1] == NULL ? NULL : fdopen(atoi(numbers[1]), "w");
  char line[4097];
  if (orders == NULL || answers == NULL) {
    fputs("nobody hands out turns: start this with kakeya-mac run\n", stderr);
    return 1;
  }
  fprintf(answers, "{\"event\":\"ready\",\"protocol\":1,\"samples\":%d,\"calibration\":{}}\n", samples);
  fflush(answers);
  while (fgets(line, sizeof line, orders) != NULL && strstr(line, "\"event\":\"end\"") == NULL) {
    if (strstr(line, "\"event\":\"go\"") == NULL) continue;
    kakeya_side side = strstr(line, "\"arm\":\"baseline\"") != NULL ? baseline : candidate;
    double began = kakeya_now(), seconds = kakeya_number(line, "seconds");
    long calls = 0;
    do {
      side((long)kakeya_number(line, "sample"));
      calls++;
    } while (kakeya_now() - began < seconds);
    long turn = (long)kakeya_number(line, "turn");
    fprintf(answers, "{\"event\":\"done\",\"turn\":%ld,\"tokens\":%ld,\"over\":true}\n", turn, calls);
    fflush(answers);
  }
  return 0;
}

#endif
