#include "text/template/python/text.h"

#include <algorithm>

#include "text/find.h"
#include "text/template/python/characters.h"

namespace qtrain {
namespace {

constexpr std::size_t kBytesOfPart = 32;
constexpr std::size_t kShortWanted = 32;  // longest text for which trying every position is fast enough

std::size_t rfind_text(std::string_view text, std::string_view wanted) {
  if (wanted.size() <= kShortWanted) return text.rfind(wanted);
  const std::string turned(text.rbegin(), text.rend());
  const std::size_t at = find_text(turned, std::string(wanted.rbegin(), wanted.rend()));
  return at == std::string_view::npos ? at : text.size() - wanted.size() - at;
}

/// Adds a part of a text, which becomes a value of a list.
void add_part(std::vector<std::string>& parts, std::string_view part) {
  PyWork::require_fits(parts.size() * kBytesOfPart);
  parts.emplace_back(part);
}

std::vector<std::string> split_at(std::string_view text, std::string_view separator, std::int64_t limit) {
  if (separator.empty()) py_fail("empty separator");
  std::vector<std::string> parts;
  std::size_t start = 0;
  while (limit < 0 || static_cast<std::int64_t>(parts.size()) < limit) {
    const std::size_t at = find_text(text, separator, start);
    if (at == std::string_view::npos) break;
    add_part(parts, text.substr(start, at - start));
    start = at + separator.size();
  }
  add_part(parts, text.substr(start));
  return parts;
}

std::vector<std::string> rsplit_at(std::string_view text, std::string_view separator, std::int64_t limit) {
  if (separator.empty()) py_fail("empty separator");
  const std::string turned(text.rbegin(), text.rend()), mark(separator.rbegin(), separator.rend());
  std::vector<std::string> parts = split_at(turned, mark, limit);
  std::reverse(parts.begin(), parts.end());
  for (std::string& part : parts) std::reverse(part.begin(), part.end());
  return parts;
}

/// Length in bytes of the text before the first whitespace.
std::size_t word_length(std::string_view text) {
  for (std::size_t pos = 0; pos < text.size();) {
    const std::size_t at = pos;
    if (is_py_space(next_code_point(text, pos))) return at;
  }
  return text.size();
}

/// Offset after the last whitespace.
std::size_t last_word(std::string_view text) {
  for (std::size_t end = text.size(); end > 0;) {
    std::size_t start = end - 1;
    while (start > 0 && (static_cast<unsigned char>(text[start]) & 0xc0) == 0x80) --start;
    std::size_t pos = start;
    if (is_py_space(next_code_point(text, pos))) return end;
    end = start;
  }
  return 0;
}

bool is_line_end(char32_t c) {
  return (c >= 0x0a && c <= 0x0d) || (c >= 0x1c && c <= 0x1e) || c == 0x85 || c == 0x2028 || c == 0x2029;
}

}  // namespace

std::size_t py_find(PyWork& work, std::string_view text, std::string_view wanted) {
  work.read(text.size() + wanted.size());
  return find_text(text, wanted);
}

std::size_t py_rfind(PyWork& work, std::string_view text, std::string_view wanted) {
  work.read(text.size());
  if (wanted.size() > kShortWanted) work.make(text.size()), work.make(wanted.size());
  return rfind_text(text, wanted);
}

int py_count(PyWork& work, std::string_view text, std::string_view wanted) {
  work.read(text.size() + wanted.size());
  int found = 0;
  for (std::size_t at = find_text(text, wanted); at != std::string_view::npos;
       at = find_text(text, wanted, at + wanted.size()))
    ++found;
  return found;
}

std::string_view py_strip(std::string_view text, Ends ends, std::optional<std::string_view> chars) {
  std::u32string set = chars ? code_points(*chars) : std::u32string();
  std::sort(set.begin(), set.end());
  const auto strips = [&](char32_t c) {
    return chars ? std::binary_search(set.begin(), set.end(), c) : is_py_space(c);
  };
  if (ends != Ends::right)
    while (!text.empty()) {
      std::size_t pos = 0;
      if (!strips(next_code_point(text, pos))) break;
      text.remove_prefix(pos);
    }
  if (ends != Ends::left)
    while (!text.empty()) {
      std::size_t start = text.size() - 1;
      while (start > 0 && (static_cast<unsigned char>(text[start]) & 0xc0) == 0x80) --start;
      std::size_t pos = start;
      if (!strips(next_code_point(text, pos))) break;
      text.remove_suffix(text.size() - start);
    }
  return text;
}

std::vector<std::string> py_split(std::string_view text, std::optional<std::string_view> separator,
                                  std::int64_t limit) {
  if (separator) return split_at(text, *separator, limit);
  std::vector<std::string> parts;
  text = py_strip(text, Ends::left);
  while (!text.empty()) {
    if (limit >= 0 && static_cast<std::int64_t>(parts.size()) >= limit) {
      add_part(parts, text);
      break;
    }
    const std::size_t n = word_length(text);
    add_part(parts, text.substr(0, n));
    text = py_strip(text.substr(n), Ends::left);
  }
  return parts;
}

std::vector<std::string> py_rsplit(std::string_view text, std::optional<std::string_view> separator,
                                   std::int64_t limit) {
  if (separator) return rsplit_at(text, *separator, limit);
  if (limit < 0) return py_split(text, std::nullopt, -1);
  std::vector<std::string> parts;
  text = py_strip(text, Ends::right);
  while (!text.empty()) {
    if (static_cast<std::int64_t>(parts.size()) >= limit) {
      add_part(parts, text);
      break;
    }
    const std::size_t at = last_word(text);
    add_part(parts, text.substr(at));
    text = py_strip(text.substr(0, at), Ends::right);
  }
  std::reverse(parts.begin(), parts.end());
  return parts;
}

std::vector<std::string> py_splitlines(std::string_view text, LineEnds ends) {
  std::vector<std::string> lines;
  std::size_t start = 0;
  for (std::size_t pos = 0; pos < text.size();) {
    const std::size_t at = pos;
    const char32_t c = next_code_point(text, pos);
    if (!is_line_end(c)) continue;
    if (c == '\r' && pos < text.size() && text[pos] == '\n') ++pos;
    add_part(lines, text.substr(start, (ends == LineEnds::keep ? pos : at) - start));
    start = pos;
  }
  if (start < text.size()) add_part(lines, text.substr(start));
  return lines;
}

std::string py_replace(PyWork& work, std::string_view text, std::string_view old, std::string_view fresh,
                       std::int64_t count) {
  std::string out;
  std::size_t start = 0, pos = 0;
  for (std::int64_t done = 0; count < 0 || done < count; ++done) {
    // An empty text matches before every character and at the end.
    if (old.empty() && done > 0) {
      if (pos == text.size()) break;
      next_code_point(text, pos);
    }
    const std::size_t at = old.empty() ? pos : find_text(text, old, start);
    if (at == std::string_view::npos) break;
    out.append(text.substr(start, at - start)).append(fresh);
    start = at + old.size();
    work.make(fresh.size());
    work.require_fits(out.size());
  }
  work.make(text.size());
  return out.append(text.substr(start));
}

std::string html_escape(std::string_view text) {
  std::string out;
  for (const char c : text) switch (c) {
      case '&': out += "&amp;"; break;
      case '<': out += "&lt;"; break;
      case '>': out += "&gt;"; break;
      case '\'': out += "&#39;"; break;
      case '"': out += "&#34;"; break;
      default: out += c;
    }
  return out;
}

}  // namespace qtrain
