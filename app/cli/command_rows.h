#pragma once
#include <string_view>
#include <vector>

#include "app/cli/command.h"

/// The rows of the table of commands, and flags that several of them have.
namespace qtrain::command_rows {

using enum FlagKind;

inline constexpr Flag kHelp{"help", present, "", "show this help"};
inline constexpr Flag kJson{"json", present, "", "print one JSON document on stdout"};
inline constexpr Flag kDevice{"device", choice, "cpu|cuda|auto", "device to run on"};
inline constexpr Flag kQuiet{"quiet", present, "", "print only warnings and errors"};
inline constexpr Flag kModel{"model", text, "DIR", "model: a folder, or its name on the hub (OWNER/NAME)",
                             ModelFiles::all};
inline constexpr Flag kTextModel{"model", text, "DIR", "model: a folder, or its name on the hub (OWNER/NAME)",
                                 ModelFiles::text};
inline constexpr Flag kRevision{"revision", text, "REV",
                                "branch, tag or commit of the --model on the hub (default: main)"};
inline constexpr Flag kFetch{"fetch", present, "", "first fetch what the config names on the hub"};
inline constexpr Flag kAdapter{"adapter", text, "DIR", "LoRA adapter: a folder, or its name on the hub",
                               ModelFiles::all};
inline constexpr Flag kDtype{"dtype", choice, "auto|float32|bfloat16|float16",
                             "data type of the weights in memory and of GEMMs (default: as in the folder)"};
inline constexpr Flag kLoadIn4Bit{"load_in_4bit", present, "", "quantize the weights to 4 bits (NF4) while loading"};
inline constexpr Flag kLoadIn8Bit{"load_in_8bit", present, "", "quantize the weights to 8 bits while loading"};
inline constexpr Flag kLoadInFp8{"load_in_fp8", present, "",
                                 "store the weights in FP8, those of a model in FP8 as they are"};
inline constexpr Flag kMoved{
    "moved", repeated, "OLD=NEW",
    "NEW is the present path of OLD, a file or folder that the run read; may be given more than once"};
inline constexpr Flag kOverwrite{"overwrite", present, "",
                                 "replace existing files even if this command did not write them"};
inline constexpr Flag kThreads{"threads", integer, "N", "number of worker threads (default: one per processor)"};
inline constexpr std::string_view kConfig = "CONFIG.json [key=value ...]";

/// Commands that take a config, and those about the rest, in the order in which the help lists them.
std::vector<Command> training_commands();
std::vector<Command> model_commands();

}  // namespace qtrain::command_rows
