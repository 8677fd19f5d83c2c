#include <fmt/format.h>

#include "app/commands/commands.h"
#include "app/commands/result_place.h"
#include "convert/gguf/export.h"
#include "convert/gguf/export_adapter.h"
#include "convert/merge.h"
#include "core/os/output_place.h"
#include "core/os/pending.h"
#include "model/model_source.h"

namespace qtrain {
namespace {

namespace fs = std::filesystem;

/// A temporary folder next to the output, or in the system's temporary folder if the output is a device.
class MergeFolder {
 public:
  explicit MergeFolder(const fs::path& output) {
    const OutputPlace place = output_place(output);
    const bool next_to_output = place.mode == WriteMode::replaced;
    const fs::path merging = place.file.filename().string() + ".merging";
    const fs::path folder = next_to_output ? place.file.parent_path() : fs::temp_directory_path();
    remove_abandoned(folder, merging);
    path_ = pending_name(folder / merging);
  }
  ~MergeFolder() {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
  }
  MergeFolder(const MergeFolder&) = delete;
  MergeFolder& operator=(const MergeFolder&) = delete;
  const fs::path& path() const { return path_; }

 private:
  fs::path path_;
};

// Merges in float32, so that sums are rounded only once, to the type of the file.
GgufExportReport export_merged(Ctx& ctx, GgufExportOptions options, const std::vector<std::string>& adapters) {
  if (!options.type) options.type = gguf_type_of_model(options.model);
  const MergeFolder merged(options.output);
  MergeOptions merge{
      .model = options.model, .output = merged.path(), .dtype = DType::f32, .log = options.log, .as = CommitAs::part};
  for (const std::string& folder : adapters) merge.adapters.push_back({folder});
  merge_adapters(ctx, merge);
  options.name = options.model;
  options.model = merged.path();
  return export_gguf(ctx, options);
}

GgufExportReport export_requested(Ctx& ctx, const Arguments& args, const GgufExportOptions& options) {
  const std::vector<std::string> adapters = args.all("adapter");
  if (args.has("merge") && adapters.empty())
    fail(ErrorKind::usage, {.cause = "--merge needs an adapter", .remedy = "add --adapter DIR"});
  if (args.has("merge")) return export_merged(ctx, options, adapters);
  if (adapters.empty()) return export_gguf(ctx, options);
  if (adapters.size() > 1)
    fail(ErrorKind::usage, {.cause = "a GGUF file holds only one adapter",
                            .remedy = "export each adapter to its own file, or merge them with --merge"});
  return export_gguf_adapter({.model = options.model,
                              .adapter = adapters.front(),
                              .output = options.output,
                              .type = options.type.value_or(GgufType::f32),
                              .log = options.log,
                              .name_now = options.name_now});
}

}  // namespace

int run_export(const Arguments& args) {
  GgufExportOptions options{.model = model_folder(args.required("model")), .output = args.required("output")};
  options.log = &args.log();
  std::vector<fs::path> inputs{options.model};
  for (const std::string& adapter : args.all("adapter")) inputs.emplace_back(adapter);
  ResultFile result(args, options.output, inputs);
  options.name_now = result.name_now();
  if (const auto type = args.text("type"); type && *type != "auto") options.type = gguf_export_type(*type);
  Ctx ctx({}, MatmulPrecision::storage, static_cast<int>(args.integer("threads").value_or(0)));
  const auto report = export_requested(ctx, args, options);
  for (const auto& note : report.notes) args.log().warn("{}", note);
  std::string tensors;
  Json by_type = Json::object();
  for (const auto& [type, count] : report.tensors) {
    tensors += fmt::format("{}{} {}", tensors.empty() ? "" : ", ", count, name_of(type));
    by_type[std::string(name_of(type))] = count;
  }
  const std::string what =
      args.has("adapter") && !args.has("merge") ? args.all("adapter").front() : options.model.string();
  args.give({.text = fmt::format("exported {} to {}, with tensors {}", what, report.file.string(), tensors),
             .json = {{"output", report.file.string()}, {"tensors", by_type}, {"notes", report.notes}}});
  return 0;
}

}  // namespace qtrain
