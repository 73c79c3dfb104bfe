"""Two ways to count words, in one program that takes turns: one reading of the text serves both."""

from collections import Counter

import kakeya_marks

WORDS = [f"word{number * 7919 % 1009}" for number in range(200_000)]


def by_hand(_sample):
    """Count with a dictionary."""
    counts = {}
    for word in WORDS:
        counts[word] = counts.get(word, 0) + 1


def by_counter(_sample):
    """Count with the standard library."""
    Counter(WORDS)


if __name__ == "__main__":
    by_hand(0)
    by_counter(0)
    kakeya_marks.take_turns({"baseline": by_hand, "candidate": by_counter}, samples=4)
