// Files of a model folder that are copied as they are; declared in hf_folder.h.
#include "core/os/file.h"
#include "core/os/paths.h"
#include "model/hf_folder.h"

namespace qtrain {
namespace {

namespace fs = std::filesystem;

constexpr const char* kTemplate = "chat_template.jinja";
constexpr const char* kNamedTemplates = "additional_chat_templates";
constexpr const char* kGenerationConfig = "generation_config.json";
constexpr const char* kTokenizerFiles[] = {"tokenizer.json",    "tokenizer_config.json",
                                           "tokenizer.model",   "special_tokens_map.json",
                                           "added_tokens.json", "vocab.json",
                                           "merges.txt"};

// Copies a file from one folder to another, if it exists.
void copy_file_of(const fs::path& from, const fs::path& to, const fs::path& name) {
  std::error_code absent;
  if (!is_plain_file(from / name) || fs::equivalent(from / name, to / name, absent)) return;
  create_folders((to / name).parent_path());
  write_file(to / name, read_text(from / name));
}

}  // namespace

void copy_generation_config(const fs::path& from, const fs::path& to) {
  copy_file_of(from, to, kGenerationConfig);
}

void copy_tokenizer_files(const fs::path& from, const fs::path& to) {
  for (const char* name : kTokenizerFiles) copy_file_of(from, to, name);
}

void copy_chat_templates(const fs::path& from, const fs::path& to) {
  copy_file_of(from, to, kTemplate);
  std::error_code error;
  for (fs::directory_iterator it(from / kNamedTemplates, error), end; !error && it != end; it.increment(error))
    if (it->path().extension() == ".jinja") copy_file_of(from, to, kNamedTemplates / it->path().filename());
}

void write_chat_templates(const std::map<std::string, std::string>& sources, const fs::path& to) {
  for (const auto& [name, source] : sources) {
    const fs::path file = name == "default" ? fs::path(kTemplate) : fs::path(kNamedTemplates) / (name + ".jinja");
    create_folders((to / file).parent_path());
    write_file(to / file, source);
  }
}

void copy_companions(const fs::path& from, const fs::path& to) {
  copy_generation_config(from, to);
  copy_tokenizer_files(from, to);
  copy_chat_templates(from, to);
}

}  // namespace qtrain
