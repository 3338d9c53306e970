#pragma once
#include <span>
#include <string>
#include <vector>

#include "apps/compare/statistics/paired.h"
#include "apps/compare/verdict.h"

/// From figures to judgements: pure functions, so that rules can be tested with made-up figures.
/// A figure that was computed counts as known exactly; one with samples but without an interval, or
/// without a finite value, decides nothing. An interval that reaches over an edge decides nothing
/// about that edge.
namespace lockstep::apps {

/// Reproduced where the interval lies within `claimed`, in part where it lies within `near`, not
/// reproduced where it lies outside `near`, else inconclusive.
Judgement within(const Figure& figure, Interval claimed, Interval near, Provenance provenance);

/// Reproduced where the interval lies at or above `claimed`, not reproduced where it lies below
/// `refuted`, in part where it lies between them; else inconclusive. refuted <= claimed.
Judgement at_least(const Figure& figure, double claimed, double refuted, Provenance provenance);
/// The same the other way round: refuted >= claimed.
Judgement at_most(const Figure& figure, double claimed, double refuted, Provenance provenance);

/// A claim that two arms do the same: reproduced where they are equivalent, not reproduced where
/// they differ beyond the margin in either direction.
Judgement same(const Figure& figure, const statistics::PairedTest& test);
/// A claim that the arm's figure is larger: reproduced above the margin, not reproduced where they
/// are equivalent or it is smaller.
Judgement larger(const Figure& figure, const statistics::PairedTest& test);

/// A claim of several parts: their finding where they agree, inconclusive or not testable where one
/// of them is, else in part. The reasons follow each other. The provenance is the common one, or
/// modelled where only some parts were measured.
Judgement all_of(std::span<const Judgement> parts);

/// The same figures without a finding: this is what `--quick` says of rules that need more.
Judgement preview(const Judgement& judgement, const std::string& why);

/// The mean difference as a figure, with the test's interval.
Figure difference_figure(std::string name, std::string unit, const statistics::PairedTest& test);
/// The mean with Student's interval at 95 %.
Figure mean_figure(std::string name, std::string unit, std::span<const double> values);

}  // namespace lockstep::apps
