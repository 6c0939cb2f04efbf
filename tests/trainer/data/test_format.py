"""Samples and shards as bytes."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rankzero.errors import DataError
from rankzero.train.data import index, layout
from rankzero.train.data.fields import Field, decode, encode
from rankzero.train.data.index import Index, Shard

FIELDS = (
    Field("image", "bytes"),
    Field("label", "int"),
    Field("weight", "float"),
    Field("caption", "text"),
    Field("more", "json"),
    Field("tokens", "uint16"),
)

samples = st.fixed_dictionaries(
    {
        "image": st.binary(max_size=40),
        "label": st.integers(-(2**63), 2**63 - 1),
        "weight": st.floats(allow_nan=False),
        "caption": st.text(max_size=20),
        "more": st.dictionaries(st.text(max_size=5), st.integers(), max_size=3),
        "tokens": st.lists(st.integers(0, 65535), max_size=9),
    }
)


def as_bytes(sample: dict[str, Any]) -> bytes:
    tokens = b"".join(token.to_bytes(2, "little") for token in sample["tokens"])
    return encode(FIELDS, {**sample, "tokens": tokens})


@given(samples)
def test_a_sample_comes_back_as_it_was(sample: dict[str, Any]) -> None:
    found = decode(FIELDS, as_bytes(sample))
    assert {**found, "tokens": found["tokens"].tolist()} == sample


@given(samples, st.data())
def test_a_sample_that_is_cut_is_refused(sample: dict[str, Any], data: st.DataObject) -> None:
    raw = as_bytes(sample)
    with pytest.raises(ValueError, match=r"field|left over"):
        decode(FIELDS, raw[: data.draw(st.integers(0, len(raw) - 1))])


def test_a_kind_of_field_that_does_not_exist_is_named_with_those_that_do() -> None:
    with pytest.raises(ValueError, match="'x' is of kind 'picture'; allowed: int, float, bytes"):
        Field("x", "picture")


@given(st.lists(st.binary(max_size=30), min_size=1, max_size=20))
def test_a_shard_has_every_sample_where_its_table_says(parts: list[bytes]) -> None:
    shard = layout.build(parts)
    table = layout.Table(shard[: layout.table_bytes(len(parts))])
    assert len(table) == len(parts)
    for number, part in enumerate(parts):
        offset, length = table.place(number)
        found = shard[offset : offset + length]
        assert found == part
        assert table.is_whole(number, found)


@given(st.integers(0, layout.table_bytes(3) - 1), st.integers(1, 255))
def test_no_changed_byte_of_a_table_goes_unseen(at: int, change: int) -> None:
    table = bytearray(layout.build([b"a", b"bc", b"d"])[: layout.table_bytes(3)])
    table[at] ^= change
    with pytest.raises(ValueError, match=r"begins with|speaks of|damaged"):
        layout.Table(bytes(table))


def test_an_index_comes_back_as_it_was_and_its_name_follows_the_content() -> None:
    shards = (Shard("shard-000000.rz", 3, 99, "aa"), Shard("shard-000001.rz", 2, 70, "bb"))
    whole = Index(FIELDS, shards, "source", {"classes": ["a", "b"]})
    assert index.load(whole.dump(), "index.json") == whole
    assert whole.samples == 5
    assert Index(FIELDS, shards[:1], "source").fingerprint != whole.fingerprint


@pytest.mark.parametrize(
    ("raw", "says"),
    [
        (b"", "not the index of a packed data set"),
        (b"[]", "not the index"),
        (b'{"format": "zip"}', "its format is 'zip' instead of 'rankzero-shards'"),
        (b'{"format": "rankzero-shards", "version": 2}', "version 2; this rankzero reads 1"),
        (b'{"format": "rankzero-shards", "version": 1}', "it lacks 'fields'"),
        (Index(FIELDS, (), "s").dump().replace(b'"samples": 0', b'"samples": 7'), "add up to 0 samples instead of 7"),
    ],
)
def test_a_bad_index_is_named_with_what_is_wrong(raw: bytes, says: str) -> None:
    with pytest.raises(DataError, match=says):
        index.load(raw, "/data/index.json")
