"""Thrift's compact protocol, decoded into plain values: a struct is a dict by field number. Pure.

The footer of a Parquet file is one such struct (``parquet.thrift`` names the numbers). ``lake/parquet`` reads small
footers with it, because asking an engine costs more than reading them. It knows no schema, so new fields do no harm.
"""

from __future__ import annotations

from typing import Any, TypeAlias

Struct: TypeAlias = dict[int, Any]

_TRUE, _FALSE, _BYTE, _DOUBLE, _BINARY, _LIST, _SET, _STRUCT = 1, 2, 3, 7, 8, 9, 10, 12


def decode(data: bytes) -> Struct:
    """The struct that fills ``data``; ValueError or IndexError for anything else."""
    found, end = _struct(data, 0)
    if end != len(data):
        raise ValueError(f"the struct ends at byte {end} of {len(data)}")
    return found


def _struct(data: bytes, at: int) -> tuple[Struct, int]:
    fields: Struct = {}
    number = 0
    while head := data[at]:
        at += 1
        if head > 0x0F:
            number += head >> 4
        else:
            number, at = _integer(data, at)
        kind = head & 0x0F
        if kind <= _FALSE:
            fields[number] = kind == _TRUE
        elif _BYTE < kind < _DOUBLE:
            byte = data[at]
            if byte < 0x80:  # most numbers are small: not worth a call
                at += 1
                fields[number] = (byte >> 1) ^ -(byte & 1)
            else:
                fields[number], at = _integer(data, at)
        else:
            fields[number], at = _value(data, at, kind)
    return fields, at + 1


def _value(data: bytes, at: int, kind: int) -> tuple[Any, int]:
    if kind == _BINARY:
        size = data[at]
        at += 1
        if size > 0x7F:
            size, at = _unsigned(data, at - 1)
        end = at + size
        if end > len(data):
            raise IndexError("a text reaches beyond the end")
        return data[at:end], end
    if kind == _STRUCT:
        return _struct(data, at)
    if kind in (_LIST, _SET):
        return _list(data, at)
    if _BYTE < kind < _DOUBLE:
        return _integer(data, at)
    if kind in (_TRUE, _FALSE, _BYTE):  # in a list a boolean takes a byte
        return data[at], at + 1
    if kind == _DOUBLE:
        if at + 8 > len(data):
            raise IndexError("a number reaches beyond the end")
        return data[at : at + 8], at + 8
    raise ValueError(f"type {kind} has no place in a footer")


def _list(data: bytes, at: int) -> tuple[list[Any], int]:
    head = data[at]
    at += 1
    count, kind = head >> 4, head & 0x0F
    if count == 0x0F:
        count, at = _unsigned(data, at)
    items = []
    for _ in range(count):
        item, at = _value(data, at, kind)
        items.append(item)
    return items, at


def _integer(data: bytes, at: int) -> tuple[int, int]:
    raw, at = _unsigned(data, at)
    return (raw >> 1) ^ -(raw & 1), at


def _unsigned(data: bytes, at: int) -> tuple[int, int]:
    found = shift = 0
    while True:
        byte = data[at]
        at += 1
        found |= (byte & 0x7F) << shift
        if byte < 0x80:
            return found, at
        shift += 7
