"""A list on disk against a list in memory."""
from hypothesis import given
from hypothesis import strategies as st

from corpora.disklist import DiskList

items = st.tuples(st.text(max_size=5), st.integers())
places, ends = st.integers(0, 20), st.integers(-5, 25)
steps = st.lists(st.one_of(
    st.tuples(st.just("append"), items), st.tuples(st.just("set"), places, items),
    st.tuples(st.just("get"), places), st.tuples(st.just("slice"), ends, ends)))


@given(steps)
def test_it_does_what_a_list_does(steps):
    ours, theirs = DiskList(list, tuple), []
    for name, *values in steps:
        if name == "append":
            ours.append(values[0])
            theirs.append(values[0])
        elif name == "slice":
            chosen = slice(*values)
            assert ours[chosen] == theirs[chosen]
            ours[chosen] = theirs[chosen] = [(text + "!", number) for text, number in theirs[chosen]]
        elif theirs and name == "get":
            assert ours[values[0] % len(theirs)] == theirs[values[0] % len(theirs)]
        elif theirs:
            index = values[0] % len(theirs) - len(theirs)  # negative indices too
            ours[index] = theirs[index] = values[1]
        assert len(ours) == len(theirs)
    assert list(ours) == theirs


def test_what_was_taken_out_is_a_copy():
    ours = DiskList(list, list)
    ours.append([1])
    ours[0].append(2)
    assert ours[0] == [1]
