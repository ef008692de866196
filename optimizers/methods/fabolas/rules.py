"""The numbers that decide in Fabolas where the paper names none: one table, with a reason each."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Rules:
    """Numbers of the method; those with a section or an author are published, the others are ours.

    `SearchRecipe` says which parts a method has, and so which rules act. `variant=paper` has no
    gate, no halving and no verification while it searches: the rules of the gate do not act there,
    nor `promising_from`, nor, of full evaluations, those before `verified`.
    """

    # Sizes of subsets.
    rows_per_class: int = 10
    """Rows of the smallest subset for each class, on average (Klein et al. 2017, section 4)."""
    least_rows: int = 50
    """Rows of the smallest subset: losses on fewer are steps of several percent."""
    most_range: int = 256
    """Rows of all data for each row of the smallest subset: a smaller one ranks too little."""
    least_range: int = 8
    """Rows of all data for each row of the smallest subset: below, there is no room to learn in."""
    unknown_range: int = 64
    """The same where the number of rows is not known: the smallest share of the paper's SVMs."""
    small: float = 1 / 8
    """Largest share of the rows that needs few folds: noise of the subset exceeds that of folds."""

    # First design.
    rung_shares: tuple[float, ...] = (1 / 64, 1 / 32, 1 / 16, 1 / 8)
    """Shares of the rows on the rungs where sizes have them (Klein et al. 2017, section 3.3)."""
    rung_sixths: tuple[int, ...] = (0, 1, 2, 3)
    """Sixths of the logarithmic scale nearest to the rungs otherwise: its lower half, as above."""
    promising_from: int = 4
    """Losses of a rung with which hopeless ones are told apart: fewer say too little."""
    least_losses: int = 3
    """Known losses before a process is learned: two determine any trend."""
    path_draws: int = 20
    """Draws of a path with a wanted model: with more, a forbidden model would hold up an ask."""

    # Observations.
    most_excused: int = 3
    """Failures of a path put down to its subsets: more show that the path itself fails."""
    least_seconds: float = 1e-3
    """Least seconds that a logarithm is taken of: what was cached may take none."""
    largest_loss: float = 1e100
    """Largest loss of an exploded model: its square is still a number."""
    cap_ranges: float = 3.0
    """Interquartile ranges above the median where losses are cut, or a plateau rules the scale."""
    unknown_held_out: int = 200
    """Held-out rows where their number is not known: an error of 0 counts as half a row."""
    large_subset: float = 0.5
    """Size s of results that are never thinned: they tell most of all rows."""
    best_kept: int = 100
    """Best results that are never thinned: the minimiser is among them."""

    # Belief.
    one_process: int = 300
    """Results of one process: with more each model has its own, as a fit costs their cube."""
    outcomes: int = 8
    """Draws of pending outcomes by a single sample: one lucky draw would attract all asks."""
    steepest: float = 2.0
    """Power of the rows that seconds grow with beyond the largest subset seen, as for SVMs."""
    cheapest: float = 1.0
    """Predicted ln seconds below the least seen, at most: none is infinitely cheap."""
    dearest: float = 3.0
    """Predicted ln seconds above the most to be expected, at most: none is infinitely dear."""

    # Parameters of the processes.
    drawn_from: int = 10
    """Results with which parameters are drawn: with fewer the prior decides, and a fit will do."""
    most_sampled: int = 24
    """Parameters that are drawn: with more the walkers take longer than most evaluations."""
    burn_in: int = 60
    """Sweeps of new walkers: they begin near a fit, not in the prior."""
    sweeps: int = 8
    """Sweeps of kept walkers at each ask: a result more moves the posterior little."""
    fit_iterations: int = 20
    """Iterations of a fit, which begins with the last one."""
    fitted_always: int = 64
    """Results up to which each ask fits anew: later fits take longer and move parameters less."""
    fitted_after: int = 3
    """New results after which larger processes are fitted: fewer move parameters little."""

    # Search.
    n_representers: int = 50
    """Candidates that stand for the space (Hennig and Schuler 2012)."""
    n_draws: int = 512
    """Draws of the function at the representers: gains are then exact to 0.001 nats."""
    n_thompson: int = 32
    """Draws of the function whose minimisers become representers."""
    pool: int = 400
    """Candidates among which representers are chosen, half of them near the best."""
    candidates: int = 300
    """Candidates of the first round of the search, half of them near the best."""
    near: int = 8
    """Best evaluated configurations near which candidates are drawn."""
    refined: int = 5
    """Best candidates that each further round refines."""
    moves: int = 60
    """Candidates of each further round."""
    widths: tuple[float, ...] = (0.08, 0.025)
    """Deviations of their moves on the unit scale, one for each further round."""
    least_gain: float = 1e-4
    """Nats: with no candidate above, nothing more is to be learned about the minimiser."""
    least_entropy: float = 1e-2
    """Nats of the minimiser: with less it is known."""

    # Overhead, c_overhead of equation 7.
    dispatch_seconds: float = 0.07
    """Seconds of handing an evaluation to a worker."""
    last_asks: int = 5
    """Last asks whose median seconds are the other part of the overhead."""

    # Full evaluations.
    anchored: float = 0.75
    """Subset seconds before the first one, in its own seconds: it anchors the level at s = 1."""
    unproven: float = 0.3
    """Subset seconds before each further one, in its own seconds, while subsets prove no help."""
    trusted: float = 0.25
    """The same once subsets have proved their help and `verify_every` asks have passed."""
    few_full: int = 5
    """Full evaluations made at once while predictions are vague: subsets have told nothing."""
    told: float = 0.1
    """Predicted variance, as a share of the noise, below which an outcome at s = 1 is known."""
    verified: int = 3
    """Best predictions of which one is verified once the minimiser is known."""
    reserved: float = 1.3
    """Time kept for confirmations, in their predicted seconds: predictions are that uncertain."""

    # Gate.
    vague: float = 0.7
    """Deviation of a prediction, in that of all losses, from which on it has told nothing."""
    judged: int = 4
    """Newest full evaluations that are judged: earlier predictions knew less."""
    least_judged: int = 2
    """Judged evaluations before a verdict: one may be luck."""
    most_skill: float = 2.0
    """Nats that one outcome counts for at most: none decides alone."""
    closes: float = 0.5
    """Nats of skill below which the first verdict gives subsets up."""
    opens: float = 2.0
    """Nats of skill with which subsets are taken up again: more, or the gate would flutter."""
    proves: float = 1.0
    """Nats of skill with which subsets are of help, and below which later verdicts give them up."""
    many_full: int = 4
    """Full evaluations before a process of them alone is a guess to beat."""
    surest: float = 0.1
    """Least deviation of that guess, in that of all losses: with few results it is too sure."""

    # Decisions for people.
    least_loss: float = 1e-3
    """Least percent that a logarithm is taken of."""
    unlikely: float = 2.0
    """Deviations between a prediction and its outcome that are a disagreement."""
    least_shown: float = 0.05
    """Probability of a model that is worth naming."""


RULES = Rules()
