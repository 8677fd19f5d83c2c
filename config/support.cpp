#include <fmt/format.h>

#include "config/check.h"
#include "core/device.h"

/// What a config asks for and the program does not have.
namespace qtrain {

std::vector<ErrorText> unsupported(const ResolvedConfig& config) {
  const Config& c = config.value;
  std::vector<ErrorText> problems;
  const auto need = [&](bool fine, const char* key, std::string cause, std::string remedy) {
    if (!fine)
      problems.push_back({.cause = std::move(cause), .place = config.origin.at(key), .remedy = std::move(remedy)});
  };
  need(!c.model.model_name_or_path.empty(), "model_name_or_path", "model_name_or_path is missing",
       "name the model's folder");
  if (c.run.device == DeviceChoice::cuda)
    need(cuda_problem().empty(), "device", "device cuda: " + cuda_problem(), "set device to cpu or auto");
  const bool many = c.run.nproc * c.run.nnodes > 1;
  need(!many || c.run.device != DeviceChoice::cuda, "nproc", "several ranks train on processors only, so far",
       "set device to cpu, or nproc to 1");
  need(c.run.node_rank < c.run.nnodes, "node_rank", "there is no such machine: they count from 0", "set it below nnodes");
  need(!find_optimizer(c.training.optim)->rule.empty(), "optim",
       fmt::format("optim \"{}\" is not available", c.training.optim),
       fmt::format("use one of {}", optimizer_summary()));
  for (const std::string& tracker : c.training.report_to)
    need(tracker == "tensorboard", "report_to", fmt::format("report_to \"{}\": nothing can be sent there", tracker),
         "set report_to to tensorboard or none: metrics are in output_dir either way, in metrics.jsonl and as event "
         "files in runs/");
  return problems;
}

void require_supported(const ResolvedConfig& config) {
  const auto problems = unsupported(config);
  if (!problems.empty()) fail_with(problems, "config");
}

}  // namespace qtrain
