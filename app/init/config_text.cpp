#include "app/init/config_text.h"

#include <fmt/format.h>

#include "core/os/terminal.h"
#include "core/utf8.h"

namespace qtrain::init {
namespace {

constexpr int kColumns = 100;

/// Writes comments with what begins them in a file of that name.
class Comments {
 public:
  explicit Comments(const std::filesystem::path& file)
      : mark_(file.extension() == ".yaml" || file.extension() == ".yml" ? "#" : "//") {}

  /// Names from files may contain line ends, after which the rest would be read as keys.
  std::string of(const std::string& text, std::string_view indent) const {
    std::string out;
    for (const std::string& line : wrapped(one_line(text), kColumns))
      if (const std::size_t begin = line.find_first_not_of(' '); begin != line.npos)
        out += fmt::format("{}{} {}\n", indent, mark_, line.substr(begin));
    return out;
  }

 private:
  std::string_view mark_;
};

/// {"a": {"b": value}} for "a.b".
void set_member(Json& object, const std::string& path, Json value) {
  const std::size_t dot = path.find('.');
  if (dot == path.npos || !object.is_object())
    object[path] = std::move(value);
  else
    set_member(object[path.substr(0, dot)], path.substr(dot + 1), std::move(value));
}

}  // namespace

std::string config_text(const std::string& head, const Choices& choices, const std::filesystem::path& file) {
  const Comments comments(file);
  Json rest = Json::object();
  for (const auto& [key, word] : choices.unused()) set_member(rest, key, value_of_word(word));
  std::string members;
  for (const Choice& choice : choices.all()) {
    const std::string comment = comments.of(choice.reason, "  ");
    members +=
        fmt::format("{}{}{}  {}: {}", members.empty() ? "" : ",\n", members.empty() || comment.empty() ? "" : "\n",
                    comment, dump_json(choice.key), dump_json(choice.value));
  }
  for (const auto& [key, value] : rest.items()) members += fmt::format(",\n  {}: {}", dump_json(key), dump_json(value));
  return comments.of(head, "") + "{\n" + members + "\n}\n";
}

}  // namespace qtrain::init
