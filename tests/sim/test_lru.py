from tilewright.sim.memory import Lru


def test_values_are_made_once_and_the_least_recently_used_go():
    made = []
    cache = Lru(10)

    def get(key, cost=4):
        def make():
            made.append(key)
            return key.upper()

        assert cache.get(key, make, lambda value: cost) == key.upper()

    for key in ("a", "b", "a", "c", "a", "b"):  # c pushes b out, b pushes c out
        get(key)
    assert made == ["a", "b", "c", "b"]
    assert (len(cache), cache.cost) == (2, 8)
    get("huge", 11)
    get("huge", 11)
    assert made[4:] == ["huge", "huge"]
    assert (len(cache), cache.cost) == (2, 8)
    cache.clear()
    assert (len(cache), cache.cost) == (0, 0)
