#pragma once
#include <nlohmann/json.hpp>

#include <cstdint>
#include <optional>
#include <string>

#include "core/file.h"

/// What a run leaves behind: run.json, metrics.jsonl, summary.json, model.safetensors, with
/// --profile trace.json. See README.md for the fields.
namespace lockstep::apps {

inline constexpr char kRunFile[] = "run.json";
inline constexpr char kMetricsFile[] = "metrics.jsonl";
inline constexpr char kSummaryFile[] = "summary.json";
inline constexpr char kModelFile[] = "model.safetensors";
inline constexpr char kTraceFile[] = "trace.json";
inline constexpr char kTimelineFile[] = "timeline.json";  ///< of a modelled cluster's first steps
inline constexpr char kRanksFile[] = "ranks.jsonl";       ///< its every rank's every step

/// One optimiser step, as a line of metrics.jsonl.
struct StepRecord {
  int64_t step = 0;   ///< from 1: steps done
  double time_s = 0;  ///< this step alone, without evaluation
  double loss = 0;    ///< mean over all tokens or samples of the step, all ranks
  double lr = 0;
  int64_t samples = 0;                           ///< in this step, all ranks
  int64_t wire_bytes = 0;                        ///< this rank, this step
  double comm_s = 0;                             ///< something was on its way
  double exposed_comm_s = 0;                     ///< the rank did nothing else
  double scale = 1;                              ///< of the loss
  bool skipped = false;                          ///< the parameters were left alone
  std::optional<double> val_loss, val_accuracy;  ///< where an evaluation followed the step
  std::string note;  ///< what it found, for a person, where that is no accuracy
  nlohmann::ordered_json more = nlohmann::ordered_json::object();  ///< what an app or a probe adds
};

class RunDirectory {
 public:
  enum class Existing { refuse, overwrite };
  /// Makes `path` (and what leads to it); "": a new one under runs/ named after the time. One that
  /// holds files already is a UsageError, or loses the files that a run writes. SystemError(file)
  /// when it cannot be made, or while another run writes into it.
  RunDirectory(const std::string& path, Existing existing);
  /// Unless keep() was called, what was written goes away again, with the directory if it was new.
  ~RunDirectory();
  RunDirectory(const RunDirectory&) = delete;
  RunDirectory& operator=(const RunDirectory&) = delete;
  void keep() { kept_ = true; }

  const std::string& path() const { return path_; }
  std::string file(const std::string& name) const { return path_ + "/" + name; }
  /// Atomically.
  void write_json(const std::string& name, const nlohmann::ordered_json& json);
  /// Makes metrics.jsonl, should no step come.
  void begin_metrics();
  /// Appends to metrics.jsonl. If the disk is full the file still ends with a complete line.
  void write_step(const StepRecord& record);

  /// UsageError if a run could not go to `path`; touches nothing.
  static void check_usable(const std::string& path, Existing existing);

 private:
  void lock();
  std::string path_;
  int lock_ = -1;  // the open directory
  bool made_ = false, kept_ = false;
  std::optional<File> metrics_;
  int64_t metrics_bytes_ = 0;
};

}  // namespace lockstep::apps
