"""Mistakes that both type checkers report; an unused ignore comment is an error, too."""

import prefect_tune
from prefect_tune import PipelineSearch, Step, compare, load_study, retry, tune
from prefect_tune.optimizers import (
    Budget,
    Evaluation,
    Flash,
    Method,
    Query,
    Trial,
    make_optimizer,
    register,
)
from prefect_tune.tasks.catalogue.spaces import space_named

prefect_tune.tunes  # type: ignore[attr-defined]  # pyright: ignore[reportAttributeAccessIssue]

PipelineSearch("classification")  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
PipelineSearch(predicts="labels")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
PipelineSearch(trails=10)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
PipelineSearch(budget=30)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
PipelineSearch().score([[0.1]])  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]

tune("patients.csv", trials=3).best  # type: ignore[attr-defined]  # pyright: ignore[reportAttributeAccessIssue]
retry(3)  # type: ignore[call-overload]  # pyright: ignore[reportArgumentType]
compare("patients.csv", method="flash")  # type: ignore[call-overload]  # pyright: ignore[reportCallIssue]
load_study("responders").best_trial = 3  # type: ignore[misc]  # pyright: ignore[reportAttributeAccessIssue]

space = space_named("small")
make_optimizer("random", space)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
make_optimizer("random", "small", 0)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
Flash(space, 0).tell(0.25)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
Trial(0, Query(space))  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
Budget().trials_left = 3  # type: ignore[misc]  # pyright: ignore[reportAttributeAccessIssue]
Evaluation("low")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
Step("fit model", ["flash"])  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
register("settle")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
Method("settle", "settles", "settling:Settle")  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
Method(name="a", purpose="b", implementation="c:D", fidelities={"rows"})  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
