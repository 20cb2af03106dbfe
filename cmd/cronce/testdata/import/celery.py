import os
from datetime import timedelta

from celery import Celery
from celery.schedules import crontab, solar

app = Celery("shop", broker=os.environ["BROKER"])
app.conf.timezone = "Europe/Berlin"
HOURLY = 3600

app.conf.beat_schedule = {
    "report": {
        "task": "shop.report",
        "schedule": crontab(minute=0, hour=7, day_of_week="mon-fri"),
        "kwargs": {"format": "pdf", "to": ["ada", "grace"]},
        "options": {"expires": 600, "queue": "reports", "priority": 3},
    },
    "tidy up every 30 s": {"task": "shop.tidy", "schedule": 30.0, "args": (16, "all")},
    "odd-mondays": {"task": "shop.odd", "schedule": crontab(0, 5, day_of_month="*/2", day_of_week=1)},
    "every-minute-from-seven": {"task": "shop.minutes", "schedule": crontab(hour=7)},
    "half-days": {"task": "shop.half", "schedule": timedelta(hours=12), "relative": True},
    "over-the-weekend": {"task": "shop.weekend", "schedule": crontab(minute="*/20", hour="22-2,8", day_of_week="fri-mon")},
    "dawn": {"task": "shop.dawn", "schedule": solar("sunrise", 52.5, 13.4)},
    "computed": {"task": "shop.computed", "schedule": HOURLY},
    "argued": {"task": "shop.argued", "schedule": 60, "args": (os.getpid(),)},
    f"named-{HOURLY}": {"task": "shop.named", "schedule": 60},
    **more(),
}
app.conf.beat_schedule["late"] = {"task": "shop.late", "schedule": crontab(minute="H")}
app.conf.beat_schedule.update(others)


@app.on_after_configure.connect
def setup_periodic_tasks(sender, **kwargs):
    sender.add_periodic_task(10.0, report.s("hello", to="ada"), name="add every 10", expires=5)
    sender.add_periodic_task(crontab(hour=7, minute=30, day_of_week=1), report)
    for n in range(3):
        sender.add_periodic_task(n, report.s(n))
