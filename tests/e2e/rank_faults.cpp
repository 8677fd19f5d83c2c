#include "tests/e2e/rank_faults.h"

#include <fmt/format.h>

#include <fstream>
#include <iterator>

namespace qtrain::e2e {
namespace {

constexpr const char* kLibrary = QTRAIN_RANK_FAULTS;  // empty if it was not built

std::string content(const fs::path& file) {
  std::ifstream in(file, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

}  // namespace

std::string RankFault::text() const {
  return fmt::format("{}_{}_{}of{}", kind, phase, rank, ranks);
}

bool faults_can_be_made() {
  return *kLibrary != '\0';
}

Json RankFaults::config() const {
  Json config = base();
  config.update({{"gradient_accumulation_steps", 12},
                 {"max_steps", 6},
                 {"eval_dataset_name", config.at("dataset_name")},
                 {"eval_strategy", "steps"},
                 {"eval_steps", 3},
                 {"save_strategy", "steps"},
                 {"save_steps", 2},
                 {"zero_stage", 1},
                 {"ddp_timeout", 6}});
  return config;
}

std::vector<std::string> RankFaults::variables(const RankFault& fault) const {
  return {fmt::format("LD_PRELOAD={}", kLibrary),
          fmt::format("RANK_FAULT={}", fault.kind),
          fmt::format("RANK_FAULT_PHASE={}", fault.phase),
          fmt::format("RANK_FAULT_RANK={}", fault.rank),
          fmt::format("RANK_FAULT_OUTPUT={}", at("out").string()),
          fmt::format("RANK_FAULT_ONCE={}", at("once").string())};
}

std::string RankFaults::undisturbed() const {
  Json alone = config();
  alone.update({{"output_dir", at("undisturbed").string()}, {"save_strategy", "no"}, {"device", "cpu"}});
  train_ok(folder_.path(), alone);
  return bytes_of(at("undisturbed/adapter_model.safetensors"));
}

void RankFaults::expect_nothing_left() const {
  const std::string mark = fmt::format("RANK_FAULT_OUTPUT={}", at("out").string());
  for (const auto& entry : fs::directory_iterator("/proc"))
    EXPECT_EQ(content(entry.path() / "environ").find(mark), std::string::npos) << entry.path();
}

std::vector<std::string> RankFaults::whole_checkpoints() const {
  if (!fs::exists(at("out"))) return {};
  std::vector<std::string> names = checkpoint_names(at("out"));
  std::erase_if(names, [](const std::string& name) { return name.ends_with(".tmp"); });
  return names;
}

void RankFaults::expect_newest_is_whole() const {
  const std::vector<std::string> names = whole_checkpoints();
  if (!names.empty()) qtrain_ok({.words = {"inspect", at("out") / names.back(), "--verify"}});
}

}  // namespace qtrain::e2e
