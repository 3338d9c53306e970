#pragma once

namespace lockstep::distributed {

/// How compressed gradients are summed.
///   added     codes are added on the wire, where they can be, by an all-reduce
///   gathered  every rank gets every code and adds up: (n-1) codes come to a rank
///   owned     every rank adds up its part of all and sends the sum: about 2 codes come to a rank
/// automatic: added where it can be; else what brings fewer bytes, by what codes are expected to
/// take.
enum class Way { automatic, added, gathered, owned };

/// What an exchange has to know of a window of micro-batches before its gradients leave.
struct WindowTerms {
  double scale = 1;   ///< what gradients carry: a power of two
  double weight = 0;  ///< samples in this rank's
  double lr = 1;      ///< that their step will be made with, as far as is known
};

}  // namespace lockstep::distributed
