#pragma once
#include "apps/vision/residual_net.h"
#include "optim/flat_params.h"

#include <memory>
#include <string>

namespace lockstep::apps {

/// Writes a trained model (apps/training/model_file.h) of kind residual_net, parameters and running
/// statistics, whose metadata holds `config` (JSON) besides.
void save_image_model(const std::string& path, ResidualNet& model, const optim::FlatParams& params,
                      const Tensor& weights);

/// The same, in f32 and in evaluation mode. `path` is such a file or a run's directory.
/// SystemError(file) for anything that does not fit.
std::unique_ptr<ResidualNet> load_image_model(const std::string& path);

/// Puts parameters and statistics into a model of the same configuration. SystemError(file) for
/// any other.
void load_into(ResidualNet& model, const std::string& path);

}  // namespace lockstep::apps
