"""The constants of Fabolas that the paper leaves open, in one table, each with its reason."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Rules:
    """Constants of the method: published if a section or an author is named, otherwise ours.

    `SearchRecipe` decides which parts, and so which rules, a method uses. `variant=paper` has no
    gate, no halving and no verification during the search. It ignores the rules of the gate,
    `promising_from` and, among full evaluations, the rules before `verified`.
    """

    # Sizes of subsets.
    rows_per_class: int = 10
    """Rows of the smallest subset for each class, on average (Klein et al. 2017, section 4)."""
    least_rows: int = 50
    """Rows of the smallest subset: losses on fewer are steps of several percent."""
    most_range: int = 256
    """Most rows of all data per row of the smallest subset: a smaller subset ranks too poorly."""
    least_range: int = 8
    """Fewest rows of all data per row of the smallest subset: fewer leave no room to learn."""
    unknown_range: int = 64
    """The ratio if the number of rows is unknown: the smallest share of the paper's SVMs."""
    small: float = 1 / 8
    """Largest share of the rows evaluated on few folds: subset noise exceeds fold noise."""

    # First design.
    rung_shares: tuple[float, ...] = (1 / 64, 1 / 32, 1 / 16, 1 / 8)
    """Shares of the rows on the rungs if the sizes have them (Klein et al. 2017, section 3.3)."""
    rung_sixths: tuple[int, ...] = (0, 1, 2, 3)
    """Rungs in sixths of the logarithmic scale if sizes lack these: the lower half, as above."""
    promising_from: int = 4
    """Number of losses a rung needs to recognise hopeless ones: fewer are not informative."""
    least_losses: int = 3
    """Number of losses needed to fit a process: two determine any trend."""
    path_draws: int = 20
    """Attempts to draw a path with a wanted model: with more, a forbidden model delays an ask."""

    # Observations.
    most_excused: int = 3
    """Failures of a path blamed on its subsets: more show that the path itself fails."""
    least_seconds: float = 1e-3
    """Least seconds before taking logarithms: cached steps may take none."""
    largest_loss: float = 1e100
    """Largest loss of an exploded model: its square is still a number."""
    cap_ranges: float = 3.0
    """Interquartile ranges above the median at which losses are cut: plateaus distort the scale."""
    unknown_held_out: int = 200
    """Held-out rows to assume if their number is unknown: an error of 0 counts as half a row."""
    large_subset: float = 0.5
    """Size s from which results are never thinned: they tell most about all rows."""
    best_kept: int = 100
    """Best results that are never thinned: the minimiser is among them."""

    # Belief.
    one_process: int = 300
    """Most results of one process; with more, each model has its own, as fits take cubic time."""
    outcomes: int = 8
    """Draws of pending outcomes by a single sample: one lucky draw would attract all asks."""
    steepest: float = 2.0
    """Exponent of the growth of seconds with rows beyond the largest subset seen, as for SVMs."""
    cheapest: float = 1.0
    """Largest gap of predicted ln seconds below the least seen: nothing is infinitely cheap."""
    dearest: float = 3.0
    """Largest gap of predicted ln seconds above the most expected: nothing costs infinity."""

    # Parameters of the processes.
    drawn_from: int = 10
    """Results needed to draw parameters: with fewer, the prior decides and a fit suffices."""
    most_sampled: int = 24
    """Most parameters to draw: with more, walkers take longer than most evaluations."""
    burn_in: int = 60
    """Sweeps of new walkers, which start near a fit, not in the prior."""
    sweeps: int = 8
    """Sweeps of kept walkers at each ask: one more result moves the posterior little."""
    fit_iterations: int = 20
    """Iterations of a fit: it starts from the last fit."""
    fitted_always: int = 64
    """Results up to which each ask refits: later fits take longer and change parameters less."""
    fitted_after: int = 3
    """New results after which larger processes are refitted: fewer change parameters little."""

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
    """Deviations of the candidates' moves on the unit scale, one for each further round."""
    least_gain: float = 1e-4
    """Nats that some candidate must gain; else nothing more can be learned about the minimiser."""
    least_entropy: float = 1e-2
    """Entropy of the minimiser in nats below which it counts as known."""

    # Overhead, c_overhead of equation 7.
    dispatch_seconds: float = 0.07
    """Seconds of handing an evaluation to a worker."""
    last_asks: int = 5
    """Number of latest asks: their median seconds are the rest of the overhead."""

    # Full evaluations.
    anchored: float = 0.75
    """Subset seconds before the first full evaluation, as a multiple of its own: it anchors s."""
    unproven: float = 0.3
    """The same multiple before each further full evaluation, until subsets have proved helpful."""
    trusted: float = 0.25
    """The same multiple once subsets have proved helpful and `verify_every` asks have passed."""
    few_full: int = 5
    """Full evaluations without a wait while predictions are vague: subsets showed nothing."""
    told: float = 0.1
    """Predicted variance, as a share of the noise, below which a loss at s = 1 counts as known."""
    verified: int = 3
    """Best predictions among which one is verified once the minimiser is known."""
    reserved: float = 1.3
    """Time reserved for confirmations, in units of their predicted seconds, which are uncertain."""

    # Gate.
    vague: float = 0.7
    """Deviation, relative to all losses, from which a prediction is not informative."""
    judged: int = 4
    """Number of newest full evaluations to judge: earlier predictions knew less."""
    least_judged: int = 2
    """Number of judged evaluations needed for a verdict: one may be luck."""
    most_skill: float = 2.0
    """Most nats of skill from one outcome: no outcome decides alone."""
    closes: float = 0.5
    """Nats of skill below which the first verdict drops subsets."""
    opens: float = 2.0
    """Nats of skill that reopen the gate: higher than `closes`, so that it does not flutter."""
    proves: float = 1.0
    """Nats of skill that prove subsets helpful, and below which later verdicts drop them."""
    many_full: int = 4
    """Number of full evaluations from which a process of them alone is the guess to beat."""
    surest: float = 0.1
    """Least deviation of that guess, relative to all losses: few results make it overconfident."""

    # Decisions for people.
    least_loss: float = 1e-3
    """Least percentage before taking a logarithm."""
    unlikely: float = 2.0
    """Deviations between prediction and outcome that count as a disagreement."""
    least_shown: float = 0.05
    """Least probability at which a model is named."""


RULES = Rules()
