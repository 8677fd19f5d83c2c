#include "train/import/gguf_import.h"

#include "train/cli/arguments.h"

namespace qtrain {

int run_import(const Arguments& args) {
  ImportOptions options{.gguf = args.operand(0), .output = args.required("output")};
  if (const auto dtype = args.text("dtype"); dtype && *dtype != "auto") options.dtype = dtype_named(*dtype);
  const bool whole = import_gguf(options) == ImportedParts::model;
  args.log().info("imported {}{} into {}", whole ? "" : "the tokenizer of ", args.operand(0), options.output.string());
  if (!whole) args.log().warn("{} has no tensors: only the tokenizer was written", args.operand(0));
  return 0;
}

}  // namespace qtrain
