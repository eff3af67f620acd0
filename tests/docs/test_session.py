"""The comparison of sessions is strict where the page is definite, and open only where things vary."""

from __future__ import annotations

from tests.docs.session import Step, pattern_of, steps_of


def test_commands_and_what_they_print_are_told_apart() -> None:
    text = "$ one \\\n> more\nprinted\n\nagain\n$ two\n"
    assert steps_of(text) == [Step("one \\\nmore", "printed\n\nagain"), Step("two", "")]


def test_ids_and_instants_may_differ_and_nothing_else() -> None:
    output = pattern_of("01a1e158-766c-7342-9278-31eade45328b  QUEUED  2026-11-15 22:33:53Z")
    assert output.fullmatch("01a1e15f-9372-73d0-8fce-c939e6423abe QUEUED    2027-01-01 00:00:00Z  \n")
    assert not output.fullmatch("01a1e15f-9372-73d0-8fce-c939e6423abe RUNNING 2027-01-01 00:00:00Z\n")
    assert not output.fullmatch("x QUEUED 2027-01-01 00:00:00Z\n")


def test_an_ellipsis_is_the_rest_of_a_line_or_any_lines() -> None:
    assert pattern_of("a …\n…\nz").fullmatch("a b c\nd\ne\nz\n")
    assert not pattern_of("a …\nz").fullmatch("a b c\nd\nz\n")
    assert not pattern_of("a\nz").fullmatch("a\nz\nmore\n")


def test_an_id_that_is_shown_twice_is_the_same_both_times() -> None:
    one, other = "01a1e158-766c-7342-9278-31eade45328b", "01a1e15f-9372-73d0-8fce-c939e6423abe"
    twice = pattern_of(f"{one}\n{one}")
    assert twice.fullmatch(f"{other}\n{other}\n")
    assert not twice.fullmatch(f"{other}\n{one}\n")
    assert pattern_of(one, {one: other}).fullmatch(f"{other}\n")
    assert not pattern_of(one, {one: other}).fullmatch(f"{one}\n")
