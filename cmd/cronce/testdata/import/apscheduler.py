from datetime import datetime

from apscheduler.schedulers.blocking import BlockingScheduler
from apscheduler.triggers.cron import CronTrigger
from apscheduler.triggers.interval import IntervalTrigger

scheduler = BlockingScheduler(
    timezone="Europe/Berlin",
    jobstores={"default": store},
    job_defaults={"coalesce": True, "misfire_grace_time": 3600},
)


@scheduler.scheduled_job("cron", day_of_week="mon-fri", hour=7, max_instances=3)
def report():
    print("report")


scheduler.add_job("shop:tidy", "interval", minutes=5, args=[16], kwargs={"all": True}, id="tidy", jitter=30)
scheduler.add_job(once, "date", run_date=datetime(2027, 1, 1, 7, 0), id="once", replace_existing=True)
scheduler.add_job("shop:backup", CronTrigger(hour=3, timezone="UTC"), id="backup", misfire_grace_time=None, coalesce=False)
scheduler.add_job("shop:mondays", CronTrigger.from_crontab("30 5 * * 0"), id="mondays-are-0", misfire_grace_time=1)
scheduler.add_job("shop:odd", "cron", day="*/2", day_of_week=0, hour=5, start_date="2026-12-01", end_date="2027-03-01 00:00:00")
scheduler.add_job("shop:year", "cron", year=2027, month=6)
scheduler.add_job("shop:seconds", "cron", second="*/15")
scheduler.add_job("shop:last", "cron", day="last sun")
scheduler.add_job("shop:week", "cron", week=20)
scheduler.add_job(lambda: print("hello"), "cron", hour=1)
scheduler.add_job("shop:computed", "cron", hour=HOUR)
scheduler.add_job("shop:now")
scheduler.add_job(func="shop:half", trigger=IntervalTrigger(seconds=0.5))
scheduler.add_job(**settings)


class Config:
    JOBS = [{"id": "flask", "func": "shop:flask", "args": (1, 2), "trigger": "interval", "seconds": 10}]
