#include <fmt/format.h>

#include "train/cli/arguments.h"
#include "train/export/gguf_export.h"

namespace qtrain {

int run_export(const Arguments& args) {
  GgufExportOptions options{.model = args.required("model"), .output = args.required("output")};
  if (const auto type = args.text("type"); type && *type != "auto") options.type = gguf_export_type(*type);
  Ctx ctx({}, MatmulPrecision::storage, static_cast<int>(args.integer("threads").value_or(0)));
  const auto report = export_gguf(ctx, options);
  for (const auto& note : report.notes) args.log().warn("{}", note);
  std::string tensors;
  for (const auto& [type, count] : report.tensors)
    tensors += fmt::format("{}{} {}", tensors.empty() ? "" : ", ", count, name_of(type));
  args.log().info("exported {} into {}: tensors {}", options.model.string(), options.output.string(), tensors);
  return 0;
}

}  // namespace qtrain
