#include "app/reproduction/relocation.h"

#include <system_error>
#include <utility>

namespace qtrain {
namespace {

namespace fs = std::filesystem;

// The part of a path before its first wildcard. If the path is a glob, only this part can be looked up.
fs::path fixed_part(const fs::path& path) {
  fs::path fixed;
  for (const fs::path& part : path) {
    if (part.string().find_first_of("*?[") != std::string::npos) break;
    fixed /= part;
  }
  return fixed;
}

bool is_there(const fs::path& path) {
  std::error_code ignored;
  return fs::exists(fixed_part(path), ignored);
}

std::string former_file(const std::string& name, const Renames& renames) {
  for (const auto& [now, was] : renames) {
    const fs::path inside = fs::path(name).lexically_relative(now);
    if (inside == ".") return was;
    if (!inside.empty() && *inside.begin() != "..") return (fs::path(was) / inside).string();
  }
  return name;
}

template <class Change>
void change_texts(Json& value, const Change& change) {
  if (value.is_string()) value = change(value.get<std::string>());
  if (value.is_structured())
    for (Json& part : value) change_texts(part, change);
}

}  // namespace

Relocation::Relocation(fs::path was, fs::path is) : was_(std::move(was)), is_(std::move(is)) {
  while (was_.has_relative_path() && is_.has_relative_path() && was_.filename() == is_.filename()) {
    was_ = was_.parent_path();
    is_ = is_.parent_path();
  }
}

// The new path of `full` if it is, or is inside, the folder that was moved; none if no such file exists now.
std::optional<fs::path> Relocation::Move::now(const fs::path& full) const {
  const fs::path inside = full.lexically_normal().lexically_relative(was);
  if (inside.empty() || *inside.begin() == "..") return {};
  fs::path moved = inside == "." ? is : (is / inside).lexically_normal();
  return is_there(moved) ? std::optional(std::move(moved)) : std::nullopt;
}

fs::path Relocation::now(const fs::path& full) const {
  for (const Move& move : named_)
    if (const auto moved = move.now(full)) return *moved;
  if (was_ == is_ || is_there(full)) return full;
  return Move{was_, is_}.now(full).value_or(full);
}

std::string Relocation::name_now(const std::string& name, const fs::path& folder) const {
  if (name.empty() || name.find('\n') != std::string::npos) return name;
  const fs::path full = folder / name, moved = now(full);
  return moved == full ? name : moved.string();
}

Json with_former_names(Json document, const Renames& renames) {
  if (!renames.empty())
    change_texts(document, [&](const std::string& text) {
      const auto former = renames.find(text);
      return former == renames.end() ? text : former->second;
    });
  return document;
}

Json with_former_files(const Json& files, const Renames& renames) {
  std::map<std::string, Json> sorted;
  for (const auto& [name, value] : files.items()) sorted[former_file(name, renames)] = value;
  Json former = Json::object();
  for (auto& [name, value] : sorted) former[name] = std::move(value);
  return former;
}

Renames rename_moved(Json& document, const Relocation& places, const fs::path& folder) {
  Renames renames;
  change_texts(document, [&](const std::string& text) {
    std::string moved = places.name_now(text, folder);
    if (moved != text) renames[moved] = text;
    return moved;
  });
  return renames;
}

}  // namespace qtrain
