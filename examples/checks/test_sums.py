"""A suite of three tests."""


def test_numbers_add_up():
    assert sum(range(101)) == 5050


def test_nothing_adds_up_to_nothing():
    assert sum([]) == 0


def test_order_does_not_matter():
    assert sum([3, 1, 2]) == sum([1, 2, 3])
