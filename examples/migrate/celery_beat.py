#!/usr/bin/env python3
"""Print the schedule of a Celery app as a job file of Cronce.

    python celery_beat.py APP [--tz ZONE] >jobs.yaml

Run it in the environment of the app, as you run "celery -A APP beat". APP is a module, or MODULE:ATTRIBUTE.
The script asks Celery itself for the schedule: beat_schedule, add_periodic_task, and the scheduler that
beat_scheduler names, such as one that reads a database. It starts nothing, and writes nothing. What cannot
be carried over goes to standard error, with the reason; the exit status is then 3.
"""
import argparse
import datetime
import json
import re
import sys

from celery.app.utils import find_app
from celery.backends.base import DisabledBackend
from celery.beat import PersistentScheduler, ScheduleEntry, Scheduler
from celery.schedules import crontab, schedule, solar
from celery.utils.imports import symbol_by_name
from kombu.entity import Queue

HEAD = (
    "Imported from Celery beat. Each job puts its task into Celery's queue with enqueue.py, which",
    "the page on migration shows: put it beside this file, with the broker of your app. The newest",
    "missed run is caught up, as by a beat that kept its celerybeat-schedule, but only if it is no",
    'older than the horizon, 24 h. Check the days on which clocks change with "cronce next -f": beat',
    "has rules of its own for them.",
)


def main():
    parser = argparse.ArgumentParser(description="Print the schedule of a Celery app as a job file of Cronce.")
    parser.add_argument("app", metavar="APP", help="the module of the app, or MODULE:ATTRIBUTE, as for celery -A")
    parser.add_argument("--tz", metavar="ZONE", help="the name of the time zone of a schedule that Celery cannot name, such as the machine's")
    options = parser.parse_args()
    app = find_app(options.app)
    app.loader.import_default_modules()
    app.finalize(auto=True)
    jobs = Jobs(HEAD)
    for entry in entries(app, jobs):
        try:
            convert(app, jobs, entry, options.tz)
        except ValueError as err:
            jobs.note(entry.name, f"not carried over: {err}")
    return jobs.print()


def entries(app, jobs):
    """All entries that beat would have, by name."""
    plain_scheduler = Scheduler(app, lazy=True)
    plain_scheduler.data = {}
    found = {}
    for name, entry in app.conf.beat_schedule.items():
        try:
            if isinstance(entry, dict) and "task" not in entry:
                raise ValueError("it names no task")
            found[name] = plain_scheduler._maybe_entry(name, entry)
            found[name].name = name
        except Exception as err:
            jobs.note(name, f"not carried over: {err}")
    if not isinstance(app.backend, DisabledBackend):
        plain_scheduler.install_default_entries(found)  # the cleaning of a result backend
        found.update(plain_scheduler.data)
    named = symbol_by_name(app.conf.beat_scheduler)
    if issubclass(named, Scheduler) and named not in (Scheduler, PersistentScheduler):
        other = named(app=app, lazy=True)
        found.update({name: entry for name, entry in dict(other.schedule).items() if isinstance(entry, ScheduleEntry)})
        if hasattr(other, "Model"):  # of django-celery-beat: a disabled one is not in the schedule
            for model in other.Model.objects.filter(enabled=False):
                found.pop(model.name, None)
                jobs.note(model.name, "not carried over: it is disabled")
    return [found[name] for name in sorted(found, key=str)]


def convert(app, jobs, entry, tz):
    notes = []
    fields = schedule_of(app, entry.schedule, tz)
    options = dict(entry.options or {})
    queue, expires = options.pop("queue", None), options.pop("expires", None)
    fields["payload"] = payload(entry.args, entry.kwargs, queue=queue.name if isinstance(queue, Queue) else queue)
    if isinstance(expires, (int, float)):
        expires = datetime.timedelta(seconds=expires)
    if isinstance(expires, datetime.timedelta) and duration(expires):
        fields["deadline"] = duration(expires)
    elif expires is not None:
        notes.append(f"not carried over: expires={expires}")
    fields["retry"] = {"attempts": 1}
    fields["catch_up"] = catch_up(app, fields["schedule"])
    fields["overlap"] = "allow"
    if fields["schedule"].startswith("@every"):
        notes.append(f"{fields['schedule']} counts from 1970, not from the start of beat: write a cron expression if the minute matters")
    if getattr(entry.schedule, "relative", False):
        notes.append("not carried over: relative=True")
    if options:
        notes.append("not carried over: " + ", ".join(f"options {key}={value}" for key, value in sorted(options.items())))
    jobs.add(entry.name, fields, ["python3", "enqueue.py", entry.task], notes)


def catch_up(app, text):
    within = app.conf.get("beat_cron_starting_deadline")
    if within is None or text.startswith("@"):
        return {"policy": "latest"}
    if within < 60:  # a slot that is less than a minute late is not missed
        return {"policy": "none"}
    return {"policy": "latest", "within": f"{int(within)}s"}


def schedule_of(app, of, tz):
    if isinstance(of, crontab):
        if getattr(of, "nowfun", None) is not None and type(of) is crontab:
            raise ValueError(f"nowfun={of.nowfun} is a clock of its own: leave it out, and name the time zone with --tz")
        days = cron_field(of.day_of_month, 1, 31)
        weekdays = cron_field(of.day_of_week, 0, 6)
        clock = f"{cron_field(of.minute, 0, 59)} {cron_field(of.hour, 0, 23)}"
        zone = zone_name(getattr(of, "tz", None) or app.timezone, tz)
        return {**all_must_match((clock, cron_field(of.month_of_year, 1, 12)), days, weekdays), "timezone": zone}
    if isinstance(of, solar):
        raise ValueError("a solar schedule has no counterpart: write a time of the day, or let a program that computes sunrise and sunset run cronce job trigger")
    if type(of) is schedule:
        return {"schedule": interval(of.run_every)}
    raise ValueError(f"its schedule {of!r} has no counterpart")


class Jobs:
    """The job file, and what could not be carried over."""

    def __init__(self, head):
        self.lines = ["# " + line for line in head] + ["version: 1", "jobs:"]
        self.count, self.notes, self.names = 0, 0, set()

    def note(self, name, text):
        self.notes += 1
        print(f"{name}: {' '.join(text.split())}", file=sys.stderr)

    def name(self, was):
        base = re.sub(r"[^A-Za-z0-9_]+", "-", was).strip("-")[:64].rstrip("-") or "job"
        name, n = base, 1
        while name in self.names:
            n += 1
            name = f"{base[:60]}-{n}"
        self.names.add(name)
        return name

    def add(self, was, fields, command, notes, comments=()):
        """Adds a job. notes says what is different from before."""
        name = self.name(was)
        if name != was:
            notes = notes + [f"its name was {was}"]
        for text in notes:
            self.note(name, text)
        self.lines += ["", *("  # " + " ".join(text.split()) for text in [*comments, *notes])]
        fields = {"name": name, **fields, "action": {"exec": command}}
        mark = "  - "
        for key, value in fields.items():
            if value not in (None, {}, []):
                self.lines.append(f"{mark}{key}: {json.dumps(value)}")
                mark = "    "
        self.count += 1

    def print(self):
        if self.count:
            print("\n".join(self.lines))
        elif not self.notes:
            print("no jobs found", file=sys.stderr)
        return 3 if self.notes else 0 if self.count else 2


def cron_field(values, low, high):
    """Writes a set of numbers as a field of a cron expression."""
    values = sorted(set(values))
    if len(values) == high - low + 1:
        return "*"
    if len(values) > 2:
        step = values[1] - values[0]
        if all(b - a == step for a, b in zip(values, values[1:])):
            if step == 1:
                return f"{values[0]}-{values[-1]}"
            if values[0] == low and values[-1] + step > high:
                return f"*/{step}"
            return f"{values[0]}-{values[-1]}/{step}"
    return ",".join(map(str, values))


def all_must_match(schedule, days, weekdays):
    """Cronce runs at either day if both are restricted. So the other weekdays are excluded."""
    if days == "*" or weekdays == "*":
        return {"schedule": f"{schedule[0]} {days} {schedule[1]} {weekdays}"}
    named = set()
    for part in weekdays.split(","):
        first, _, rest = part.partition("-")
        last, _, step = rest.partition("/")
        if part.startswith("*/"):
            named |= set(range(0, 7, int(part[2:])))
        else:
            named |= set(range(int(first), int(last or first) + 1, int(step or 1)))
    others = ",".join(str(day) for day in range(7) if day not in named)
    return {"schedule": f"{schedule[0]} {days} {schedule[1]} *", "exclude": [f"* * * * {others}"]}


def duration(delta):
    """A timedelta of whole seconds as Cronce writes it, or None."""
    seconds = delta.total_seconds()
    return f"{int(seconds)}s" if seconds == int(seconds) and seconds >= 1 else None


def interval(delta):
    """The schedule of an interval. Raises ValueError if there is none."""
    if duration(delta) is None:
        raise ValueError(f"an interval of {delta}: want whole seconds, at least one")
    if delta.total_seconds() % 86400 == 0:
        raise ValueError(f"an interval of {delta.days} days: it counts from a start that is not known: write @every {delta.days}d with from, the first run, so that it keeps the weekday and the time of the day")
    return "@every " + duration(delta)


def payload(args, kwargs, **more):
    """The payload for the program that makes the call. Raises ValueError if JSON cannot express it."""
    call = {key: value for key, value in {"args": list(args or []), "kwargs": dict(kwargs or {}), **more}.items() if value}
    try:
        same = plain(json.loads(json.dumps(call, allow_nan=False))) == plain(call)
    except (TypeError, ValueError) as err:
        raise ValueError(f"its args or kwargs are not JSON: {err}") from None
    if not same:
        raise ValueError("its args or kwargs are not JSON: JSON has only text as keys")
    return call


def plain(value):
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items()}
    return value


def zone_name(zone, own):
    """The name of a time zone. own is the one that the user gave."""
    for name in (getattr(zone, "key", None), getattr(zone, "zone", None), zone if isinstance(zone, str) else None):
        if name:
            return "UTC" if name.lower() == "utc" else name
    if zone is datetime.timezone.utc or str(zone) in ("UTC", "tzutc()"):
        return "UTC"
    if own:
        return own
    raise ValueError(f"its time zone {zone!s} has no name: repeat with --tz ZONE, as in --tz Europe/Berlin")


if __name__ == "__main__":
    sys.path.insert(0, "")
    sys.exit(main())
