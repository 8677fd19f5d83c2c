#include "convert/quantize.h"

#include <fmt/format.h>

#include "app/commands/commands.h"
#include "app/commands/result_place.h"
#include "core/plural.h"
#include "model/model_source.h"
#include "train/setup/compute.h"

namespace qtrain {
namespace {

QuantizeOptions quantize_options(const Arguments& args) {
  QuantizeOptions options{.model = model_folder(args.required("model")), .output = args.required("output")};
  options.matrices.type = args.text("quant_type").value_or("nf4") == "nf4" ? FourBit::nf4 : FourBit::fp4;
  options.matrices.nested = args.text("double_quant").value_or("true") == "true";
  const std::int64_t blocksize = args.integer("blocksize").value_or(options.matrices.blocksize);
  if (!is_blocksize4(blocksize))
    fail(ErrorKind::usage, {.cause = fmt::format("--blocksize {} is not a valid size of 4-bit blocks", blocksize),
                            .remedy = "give 32, 64, 128, 256, 512, 1024, 2048 or 4096"});
  options.matrices.blocksize = static_cast<int>(blocksize);
  if (const auto dtype = args.text("compute_dtype")) options.compute_dtype = dtype_named(*dtype);
  options.skip_modules = args.all("skip_modules");
  options.log = &args.log();
  return options;
}

}  // namespace

int run_quantize(const Arguments& args) {
  const QuantizeOptions options = quantize_options(args);
  require_free_folder(args, options.output, {options.model});
  const int threads = static_cast<int>(args.integer("threads").value_or(0));
  Ctx ctx = make_context({.device = "cpu", .compute = "float32", .threads = threads}, args.log());
  const QuantizeReport report = quantize_folder(ctx, options);
  constexpr double kMegabyte = 1e6;
  args.give({.text = fmt::format("quantized {} of {} and wrote {}: {:.1f} MB of tensors instead of {:.1f} MB",
                                 counted(report.matrices, "matrix", "matrices"), options.model.string(),
                                 options.output.string(), static_cast<double>(report.bytes_after) / kMegabyte,
                                 static_cast<double>(report.bytes_before) / kMegabyte),
             .json = {{"output", options.output.string()},
                      {"matrices", report.matrices},
                      {"parameters", report.parameters},
                      {"bytes_before", report.bytes_before},
                      {"bytes_after", report.bytes_after}}});
  return 0;
}

}  // namespace qtrain
