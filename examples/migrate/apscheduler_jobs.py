#!/usr/bin/env python3
"""Print the jobs of an APScheduler (version 3 or 4) as a job file of Cronce.

    python apscheduler_jobs.py MODULE[:ATTRIBUTE] [--tz ZONE] >jobs.yaml

Run it in the environment of the program. It imports the module and lists the jobs of its schedulers, those
that only a job store has included. ATTRIBUTE is a scheduler, or a function without arguments that returns
one or starts one. No scheduler starts, and nothing is written: where the program starts its scheduler, this
script takes over. What cannot be carried over goes to standard error, with the reason; the exit status is
then 3.
"""
import argparse
import asyncio
import datetime
import importlib
import inspect
import json
import re
import sys
import warnings

try:
    from apscheduler.schedulers.base import BaseScheduler as Version3
    from apscheduler.schedulers import blocking
except ImportError:
    Version3 = None
try:
    from apscheduler import AsyncScheduler, Scheduler
except ImportError:
    AsyncScheduler = Scheduler = None

HEAD = (
    "Imported from APScheduler. Each job calls its function with call.py, which the page on",
    "migration shows: put it beside this file, and your modules into PYTHONPATH. As before, runs are",
    "not retried. A time that occurs twice when clocks go back runs twice, as in 3.11.2 and 4, and",
    "once in some earlier versions. A time that clocks skip runs right after the gap, where version 3",
    "runs it up to an hour later; version 4 leaves it out, and so does its job here. See those days",
    'with "cronce next -f".',
)


class Started(BaseException):
    """The program started its scheduler."""


def main():
    parser = argparse.ArgumentParser(description="Print the jobs of an APScheduler as a job file of Cronce.")
    parser.add_argument("scheduler", metavar="MODULE[:ATTRIBUTE]", help="the module that has the scheduler; or its attribute, a scheduler or a function that returns or starts one")
    parser.add_argument("--tz", metavar="ZONE", help="the name of a time zone that APScheduler cannot name, such as the machine's")
    options = parser.parse_args()
    warnings.simplefilter("ignore")  # of time zones that are asked for their name
    jobs = Jobs(HEAD)
    for found in schedulers(options.scheduler):
        for was, read in read_all(found, jobs):
            try:
                convert(jobs, was, read(), options.tz)
            except ValueError as err:
                jobs.note(was, f"not carried over: {err}")
    return jobs.print()


def schedulers(where):
    """The schedulers of a module, or of its attribute. For version 4, its lists of tasks and schedules."""
    found = []

    def started(self, *args, **kwargs):
        found.append((self.get_tasks(), self.get_schedules()) if is_sync4(self) else self)
        raise Started

    async def started_async(self, *args, **kwargs):
        found.append((await self.get_tasks(), await self.get_schedules()))
        raise Started

    if Version3:
        for each in (Version3, blocking.BlockingScheduler):
            each.start = started
    if Scheduler:
        Scheduler.start_in_background = Scheduler.run_until_stopped = started
        AsyncScheduler.start_in_background = AsyncScheduler.run_until_stopped = started_async
    module, _, attribute = where.partition(":")
    try:
        value = importlib.import_module(module)
        for part in filter(None, attribute.split(".")):
            value = getattr(value, part)
        if inspect.iscoroutinefunction(value):
            value = asyncio.run(value())
        elif callable(value) and not is_scheduler(value):
            value = value()
    except Started:
        value = sys.modules.get(module)
    values = vars(value).values() if inspect.ismodule(value) else [value]
    for each in [v for v in values if is_scheduler(v)]:
        if each not in found:
            found.append(each)
    if not found:
        sys.exit(f"{where} has no scheduler and starts none: want MODULE:ATTRIBUTE, as in shop.jobs:scheduler")
    return [opened(each) for each in found]


def is_sync4(value):
    return Scheduler is not None and isinstance(value, Scheduler)


def is_scheduler(value):
    return any(each and isinstance(value, each) for each in (Version3, Scheduler, AsyncScheduler))


def opened(found):
    """The tasks and schedules of a scheduler of version 4."""
    if is_sync4(found):
        with found:
            return found.get_tasks(), found.get_schedules()
    if AsyncScheduler is not None and isinstance(found, AsyncScheduler):
        async def read():
            async with found:
                return await found.get_tasks(), await found.get_schedules()
        return asyncio.run(read())
    return found


def read_all(found, jobs):
    """The jobs of a scheduler: for each its name, and a function that reads it."""
    if isinstance(found, tuple):
        tasks = {task.id: task for task in found[0]}
        return [(each.id, lambda each=each: schedule4(tasks[each.task_id], each)) for each in found[1]]
    stored = [(job, alias) for alias, store in found._jobstores.items() for job in stored_jobs(found, store, alias, jobs)]
    pending = [(job, alias) for job, alias, _ in found._pending_jobs]
    known = {(job.id, alias) for job, alias in pending}
    return [(named3(job), lambda job=job: job3(found, job)) for job, alias in pending + [each for each in stored if (each[0].id, each[1]) not in known]]


class Lost:
    """Stands for a job that its store cannot restore."""
    next_run_time = None


def stored_jobs(scheduler, store, alias, jobs):
    """The jobs of a store. A store removes what it cannot restore, and so it never sees that."""
    restore = getattr(store, "_reconstitute_job", None)

    def restored(state):
        try:
            return restore(state)
        except BaseException as err:
            jobs.note(alias, f"not carried over: a job in this store cannot be restored: {err}")
            return Lost()

    if restore:
        store._reconstitute_job = restored
    try:
        store.start(scheduler, alias)
        return [job for job in store.get_all_jobs() if not isinstance(job, Lost)]
    except Exception as err:
        jobs.note(alias, f"not carried over: the jobs of this store, which cannot be read: {err}")
        return []


def named3(job):
    """A job without an ID has a random one, and the name of its function."""
    return job.name if re.fullmatch("[0-9a-f]{32}", job.id) and job.name else job.id


def job3(scheduler, job):
    def setting(name):
        return getattr(job, name, scheduler._job_defaults.get(name))

    return {
        "function": job.func_ref, "trigger": job.trigger, "args": job.args, "kwargs": job.kwargs, "version": 3,
        "paused": getattr(job, "next_run_time", job) is None, "logged": job.name,
        "coalesce": "latest" if setting("coalesce") else "all", "grace": setting("misfire_grace_time"),
        "instances": setting("max_instances"), "jitter": getattr(job.trigger, "jitter", None),
    }


def schedule4(task, each):
    grace, jitter = each.misfire_grace_time, each.max_jitter
    return {
        "function": task.func, "trigger": each.trigger, "args": each.args, "kwargs": each.kwargs, "version": 4,
        "paused": each.paused, "logged": each.task_id, "coalesce": each.coalesce.name,
        "grace": grace.total_seconds() if grace is not None else None,
        "instances": task.max_running_jobs, "jitter": jitter.total_seconds() if jitter else None,
    }


def convert(jobs, was, job, tz):
    if not job["function"]:
        raise ValueError("its function has no name by which another process can import it: give it one in a module")
    notes = []
    fields = schedule_of(job["trigger"], job["version"], tz, notes)
    fields["payload"] = payload(job["args"], job["kwargs"])
    if job["jitter"]:
        fields["spread"] = f"{int(job['jitter'])}s"
        notes.append(f"jitter={job['jitter']} delays each run by a new random time; with spread, a job always has the same delay")
    fields["retry"] = {"attempts": 1}
    fields["overlap"] = "skip"
    if (job["instances"] or 1) > 1:
        fields["concurrency"] = job["instances"]
    grace = job["grace"]
    if grace is not None and grace < 60:  # a slot that is less than a minute late is not missed
        fields["catch_up"] = {"policy": "none"}
    else:
        fields["catch_up"] = {"policy": "all" if job["coalesce"] == "all" else "latest", **({"within": f"{int(grace)}s"} if grace else {})}
        if job["coalesce"] == "earliest":
            notes.append("coalesce=earliest: the newest missed run is caught up")
    if grace is None:
        notes.append("misfire_grace_time=None: runs older than the horizon (24 h) are not caught up")
    elif grace > 1:
        fields["deadline"] = f"{int(grace)}s"
    if job["paused"]:
        notes.append(f"it is paused, which a job file cannot express: run cronce job pause {re.sub(r'[^A-Za-z0-9_]+', '-', was)}")
    comments = [f"APScheduler logs it as {job['logged']}"] if job["logged"] and job["logged"] != was else []
    jobs.add(was, fields, ["python3", "call.py", job["function"]], notes, comments)


def schedule_of(trigger, version, tz, notes):
    kind = type(trigger).__name__
    start = getattr(trigger, "start_date", None) or getattr(trigger, "start_time", None)
    end = getattr(trigger, "end_date", None) or getattr(trigger, "end_time", None)
    if kind == "DateTrigger":
        at = getattr(trigger, "run_date", None) or trigger.run_time
        if at <= datetime.datetime.now(datetime.timezone.utc):
            raise ValueError(f"it runs once, at {utc(at)}, which has passed")
        return {"schedule": "@at " + utc(at)}
    if kind == "CronTrigger":
        fields = cron(trigger)
        fields["timezone"] = zone_name(trigger.timezone, tz)
        hours = fields["schedule"].split()[-4]
        if fields["timezone"] != "UTC" and not hours.startswith("*"):  # else it follows elapsed time
            fields.update({"dst_overlap": "both", **({"dst_gap": "skip"} if version == 4 else {})})
        if start and (version == 3 or start.microsecond == 0):
            fields["from"] = max(filter(None, [utc(start), fields.get("from")]))
    elif kind == "IntervalTrigger":
        fields = anchored(trigger.interval if version == 3 else trigger._interval, start, notes)
    else:
        raise ValueError(f"its trigger {trigger!s} ({kind}) has no counterpart: write a job for each of its times")
    if end:  # APScheduler may run at the end, and until is exclusive
        fields["until"] = min(filter(None, [utc(end + datetime.timedelta(seconds=1)), fields.get("until")]))
    return fields


def utc(at):
    at = at.astimezone(datetime.timezone.utc)
    if at.microsecond:
        at = at.replace(microsecond=0) + datetime.timedelta(seconds=1)
    return at.strftime("%Y-%m-%dT%H:%M:%SZ")


def cron(trigger):
    """The schedule of a cron trigger, whose fields must all match. Its Monday is 0."""
    by_name = {field.name: field.expressions for field in getattr(trigger, "fields", None) or trigger._fields}
    text = {name: ",".join(map(str, all)) for name, all in by_name.items()}
    if text["week"] != "*":
        raise ValueError(f"week={text['week']} has no counterpart: name months and days")
    days, weekdays = by_name["day"], by_name["day_of_week"]
    place = getattr(days[0], "option_num", None)
    if place is not None and len(days) == 1 and text["day_of_week"] == "*":
        day, weekday = "*", f"{(days[0].weekday + 1) % 7}" + (f"#{place + 1}" if place < 5 else "L")
    elif text["day"] == "last":
        day, weekday = "L", cron_field([(n + 1) % 7 for n in numbers(weekdays, 0, 6)], 0, 6)
    elif any(type(each).__name__ in ("LastDayOfMonthExpression", "WeekdayPositionExpression") for each in days):
        raise ValueError(f"day={text['day']}: such a position together with other days has no counterpart: write a job for each of its days")
    else:
        day = cron_field(numbers(days, 1, 31), 1, 31)
        weekday = cron_field([(n + 1) % 7 for n in numbers(weekdays, 0, 6)], 0, 6)
    parts = [cron_field(numbers(by_name[name], low, high), low, high) for name, low, high in (("second", 0, 59), ("minute", 0, 59), ("hour", 0, 23))]
    clock = " ".join(parts if parts[0] != "0" else parts[1:])
    fields = all_must_match((clock, cron_field(numbers(by_name["month"], 1, 12), 1, 12)), day, weekday)
    if text["year"] != "*":
        if not text["year"].isdigit():
            raise ValueError(f"year={text['year']}: want one year")
        for key, year in (("from", int(text["year"])), ("until", int(text["year"]) + 1)):
            first = datetime.datetime(year, 1, 1)
            fields[key] = utc(trigger.timezone.localize(first) if hasattr(trigger.timezone, "localize") else first.replace(tzinfo=trigger.timezone))
    return fields


def numbers(expressions, low, high):
    found = set()
    for each in expressions:
        first, last = getattr(each, "first", low), getattr(each, "last", high)
        found |= set(range(first, (high if last is None else last) + 1, each.step or 1))
    return found


def anchored(delta, start, notes):
    """An interval counts from its start, if that is given. Without one it is the start of the program, which
    has a fraction of a second."""
    if start is None or start.microsecond:
        fields = {"schedule": interval(delta)}
        notes.append(f"{fields['schedule']} counts from 1970, not from the start of the scheduler: set from if the minute matters")
        return fields
    if delta.total_seconds() % 86400 or not delta:
        return {"schedule": interval(delta), "from": utc(start)}
    if not hasattr(start.tzinfo, "localize") and start.utcoffset():
        raise ValueError(f"an interval of {delta} in {start.tzinfo}: whether it follows the clock there or elapsed time depends on the version: write @every {delta.days}d for the clock, or @every {delta.days * 24}h for elapsed time, and from")
    every = f"{delta.days}d" if delta.days % 7 else f"{delta.days // 7}w"
    return {"schedule": "@every " + every, "timezone": "Etc/UTC", "from": utc(start)}  # in UTC, days are elapsed time


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
