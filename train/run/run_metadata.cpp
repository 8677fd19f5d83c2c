#include "train/run/run_metadata.h"

#include <fmt/format.h>

#include <utility>
#include <vector>

#include "train/checkpoint/run_identity.h"
#include "train/setup/provenance.h"

namespace qtrain {

namespace fs = std::filesystem;

RunMetadata run_metadata(const RunContext& run, const RunData& data, const ModelSetup& setup) {
  std::vector<fs::path> files = model_files(setup);
  for (fs::path& file : text_files(run.config.value)) files.push_back(std::move(file));
  RunMetadata m{.provenance = provenance({.device = run.ctx.device(), .files = files}, run.ctx.pool()), .identity = {}};
  m.identity = run_identity({.config = run.config.value,
                             .setup = setup,
                             .train = data.train,
                             .evaluation = data.evaluation,
                             .template_date = data.template_date,
                             .provenance = m.provenance,
                             .ranks = run.ranks.size()},
                            run.ctx.matmul());
  return m;
}

Json resolved_config(const RunContext& run, const RunData& data, const Json& provenance) {
  const TrainingSection& t = run.training();
  Json resolved = resolved_json(run.config);
  resolved["ignored"].update(run.ignored.json());
  Json& section = resolved["run"] = provenance;
  section["program_sha256"] = own_program_hash();
  section["device_kind"] = run.ctx.device().kind == DeviceKind::cuda ? "cuda" : "cpu";
  section["folder"] = fs::current_path().string();  // which relative paths refer to
  section["ranks"] = run.ranks.size();              // over all machines, however they were started
  section["seed"] = t.seed;
  section["data_seed"] = t.data_seed.value_or(t.seed);
  section["max_steps"] = data.plan.max_steps;
  if (!data.template_date.empty())
    section["template_date"] = data.template_date;  // the date that the chat template writes
  section["training_data"] = fmt::format("{:016x}", data.train.fingerprint());
  section["training_data_sha256"] = data.train.sha256();
  if (data.evaluation.size() == 0) return resolved;
  section["evaluation_data"] = fmt::format("{:016x}", data.evaluation.fingerprint());
  section["evaluation_data_sha256"] = data.evaluation.sha256();
  return resolved;
}

}  // namespace qtrain
