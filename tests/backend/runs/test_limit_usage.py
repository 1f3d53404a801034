"""How the hours of a month are counted and forecast."""

from datetime import UTC, date, datetime, timedelta

from trainwright_backend.runs.limit_usage import forecast, unmetered_seconds


def test_only_the_part_of_this_month_counts() -> None:
    at = datetime(2026, 3, 1, 2, tzinfo=UTC)
    assert unmetered_seconds(at - timedelta(hours=5), at) == 2 * 3600
    assert unmetered_seconds(at + timedelta(hours=1), at) == 0 == unmetered_seconds(None, at)


def test_the_forecast_adds_the_recent_daily_mean_for_each_later_day() -> None:
    assert forecast(30.0, 14.0, date(2026, 2, 10)) == 30 + 2 * 18
    assert forecast(30.0, 14.0, date(2026, 12, 31)) == 30
