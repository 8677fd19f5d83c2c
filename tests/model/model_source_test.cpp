// Messages for paths that are given as a model but are not one.
#include "model/model_source.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>

#include "core/error.h"
#include "core/os/file.h"
#include "tests/core/temp_folder.h"

namespace qtrain {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

std::string complaint_of(const std::function<void()>& act) {
  try {
    act();
  } catch (const Error& e) {
    EXPECT_EQ(e.exit_code(), 3) << e.what();
    return e.what();
  }
  return "no error";
}
std::string said_of(const std::filesystem::path& path) {
  return complaint_of([&] { model_path(path.string()); });
}

TEST(ModelSource, AMissingFolderIsNamed) {
  for (const char* path : {"./Qwen3", "models/base/Qwen3", "/Qwen3", "Qwen3"})
    EXPECT_THAT(said_of(path), AllOf(HasSubstr("no such model folder"), HasSubstr("OWNER/NAME"))) << path;
}

TEST(ModelSource, FilesAndFoldersThatAreNoModelSayWhatTheyAre) {
  const testing::TempFolder folder;
  const auto file = [&](const char* name) {
    std::filesystem::create_directories((folder / name).parent_path());
    write_file(folder / name, "x");
    return folder / name;
  };
  const std::filesystem::path gguf = file("gguf/m-q8_0.gguf");
  for (const auto& path : {gguf, gguf.parent_path()})
    EXPECT_THAT(said_of(path), AllOf(HasSubstr("a GGUF file"), HasSubstr("qtrain import " + gguf.string()))) << path;
  EXPECT_THAT(said_of(file("adapter/adapter_config.json").parent_path()),
              AllOf(HasSubstr("this is an adapter"), HasSubstr("--adapter")));
  EXPECT_THAT(said_of(file("a/model.pt")), AllOf(HasSubstr("pickled by PyTorch"), HasSubstr("save_pretrained")));
  EXPECT_THAT(said_of(file("b/pytorch_model.bin")), HasSubstr("pickled by PyTorch"));
  EXPECT_THAT(said_of(file("meta/consolidated.00.pth").parent_path()), HasSubstr("convert_llama_weights_to_hf.py"));
  EXPECT_THAT(said_of(file("c/model.safetensors")), HasSubstr("name the folder that contains it"));
  EXPECT_THAT(said_of(file("d/notes.md").parent_path()), HasSubstr("no config.json in the folder"));
  file("e/config.json");
  EXPECT_EQ(said_of(folder / "e"), "no error");
}

}  // namespace
}  // namespace qtrain
