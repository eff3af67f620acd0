"""Common cron expressions in words; nothing for those that would need a paragraph."""

from __future__ import annotations

from holdbeat.domain.cron_syntax import NICKNAMES

_DAYS = ("Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
_SHORT = {"sun": 0, "mon": 1, "tue": 2, "wed": 3, "thu": 4, "fri": 5, "sat": 6}


def in_words(cron: str) -> str | None:
    """`every 15 minutes`, `daily at 03:00`, `Mondays at 06:30`; None where the expression itself is clearer."""
    fields = NICKNAMES.get(cron.strip().lower(), cron).split()
    if len(fields) != 5 or fields[3] != "*":
        return None
    minute, hour, day, _, weekday = fields
    if hour == "*" and day == "*" and weekday == "*":
        return _within_an_hour(minute)
    if not (minute.isdigit() and hour.isdigit()):
        return None
    at = f"at {int(hour):02d}:{int(minute):02d}"
    if day == "*" and weekday == "*":
        return f"daily {at}"
    if day == "*":
        days = _days(weekday)
        return f"{days} {at}" if days else None
    return f"day {day} of the month {at}" if day.isdigit() and weekday == "*" else None


def _within_an_hour(minute: str) -> str | None:
    if minute == "*":
        return "every minute"
    if minute.startswith("*/") and minute[2:].isdigit() and 60 % int(minute[2:] or 1) == 0:
        return "every minute" if int(minute[2:]) == 1 else f"every {minute[2:]} minutes"
    return f"hourly at :{int(minute):02d}" if minute.isdigit() else None


def _days(weekday: str) -> str | None:
    if weekday.lower() in ("1-5", "mon-fri"):
        return "weekdays"
    if weekday.lower() in ("0,6", "6,0", "6,7", "sat,sun"):
        return "weekends"
    number = _SHORT.get(weekday.lower(), int(weekday) if weekday.isdigit() and int(weekday) < 8 else None)
    return None if number is None else f"{_DAYS[number]}s"
