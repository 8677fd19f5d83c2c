#pragma once
#include <array>
#include <string_view>

namespace qtrain::cypher {

/// Word lists for the entities of the example graph. All names are made up or generic, and none contains a quote.
inline constexpr std::array<std::string_view, 40> kFirstNames{
    "Ada",    "Alice", "Anna",  "Carl",  "Clara", "Daniel", "David", "Diana", "Elena", "Emma",
    "Erik",   "Frank", "Grace", "Hanna", "Helen", "Henry",  "Hugo",  "Ida",   "Ivan",  "Jack",
    "James",  "Jane",  "John",  "Julia", "Karen", "Laura",  "Leon",  "Lucy",  "Maria", "Mark",
    "Martin", "Nina",  "Oscar", "Paul",  "Peter", "Robert", "Rosa",  "Sarah", "Simon", "Victor"};

inline constexpr std::array<std::string_view, 50> kLastNames{
    "Adams", "Baker",  "Bell",  "Berg",   "Brown", "Carter", "Clark",  "Cole",   "Cooper", "Cruz",
    "Davis", "Dixon",  "Evans", "Fisher", "Ford",  "Foster", "Garcia", "Grant",  "Gray",   "Green",
    "Hall",  "Harris", "Hill",  "Hughes", "Hunt",  "Jones",  "Kelly",  "King",   "Klein",  "Lane",
    "Lewis", "Lopez",  "Mason", "Miller", "Moore", "Morris", "Nelson", "Palmer", "Parker", "Porter",
    "Reed",  "Rivera", "Rose",  "Scott",  "Silva", "Stone",  "Turner", "Walker", "Weber",  "Young"};

inline constexpr std::array<std::string_view, 36> kFilmAdjectives{
    "Silent", "Golden",  "Broken",  "Hidden", "Frozen",  "Distant", "Burning", "Empty",  "Secret",
    "Lost",   "Crimson", "Endless", "Quiet",  "Silver",  "Wild",    "Dark",    "Bright", "Last",
    "First",  "Hollow",  "Bitter",  "Iron",   "Velvet",  "Sacred",  "Falling", "Rising", "Ancient",
    "Blue",   "Black",   "White",   "Red",    "Perfect", "Second",  "Long",    "Cold",   "Gentle"};

inline constexpr std::array<std::string_view, 36> kFilmNouns{
    "River",  "Mountain", "Garden", "Storm",  "Summer", "Winter",  "Bridge", "Station", "Horizon",
    "Empire", "Mirror",   "Shadow", "Island", "Harbor", "Forest",  "Signal", "Journey", "Desert",
    "Night",  "Morning",  "Castle", "Valley", "Train",  "Ocean",   "Planet", "Circle",  "Letter",
    "Dream",  "Moon",     "Road",   "Tower",  "Window", "Witness", "Hunter", "Game",    "Machine"};

inline constexpr std::array<std::string_view, 30> kBookNouns{
    "Song",    "History", "Map",     "Memory", "Theory",   "Language", "House",   "Daughter", "Year",    "Story",
    "Science", "Art",     "Book",    "Voice",  "Question", "Color",    "Family",  "Edge",     "Heart",   "Weight",
    "Painter", "Teacher", "Captain", "Doctor", "Sister",   "Thief",    "Student", "Keeper",   "Soldier", "Stranger"};

inline constexpr std::array<std::string_view, 30> kBookSubjects{
    "Water", "Light", "Stone", "Glass",  "Music",   "Time",   "Love",  "Sand",  "Paper",  "Salt",
    "Wind",  "Fire",  "Snow",  "Bread",  "Numbers", "Birds",  "Stars", "Trees", "Ghosts", "Kings",
    "Rain",  "Dust",  "Honey", "Wolves", "Silence", "Clouds", "Bones", "Roses", "Ships",  "Bees"};

inline constexpr std::array<std::string_view, 36> kCompanyNames{
    "Apex",    "Atlas",  "Aurora",  "Beacon",   "Cedar",   "Cobalt",  "Comet", "Delta",  "Eagle",
    "Echo",    "Falcon", "Fusion",  "Galaxy",   "Granite", "Harvest", "Helix", "Impact", "Jupiter",
    "Lotus",   "Lunar",  "Maple",   "Meridian", "Nova",    "Oak",     "Omega", "Orbit",  "Phoenix",
    "Pioneer", "Prism",  "Quantum", "Raven",    "Solar",   "Summit",  "Titan", "Vector", "Zenith"};

inline constexpr std::array<std::string_view, 8> kCompanyKinds{"Pictures", "Studios", "Media", "Systems",
                                                               "Press",    "Books",   "Group", "Labs"};

inline constexpr std::array<std::string_view, 40> kCities{
    "Amsterdam", "Athens",  "Austin", "Berlin",    "Boston",  "Brussels", "Cairo",   "Chicago", "Copenhagen", "Dallas",
    "Delhi",     "Denver",  "Dublin", "Geneva",    "Hamburg", "Helsinki", "Lima",    "Lisbon",  "London",     "Madrid",
    "Melbourne", "Miami",   "Milan",  "Montreal",  "Moscow",  "Munich",   "Nairobi", "Oslo",    "Paris",      "Prague",
    "Rome",      "Seattle", "Seoul",  "Stockholm", "Sydney",  "Tokyo",    "Toronto", "Vienna",  "Warsaw",     "Zurich"};

inline constexpr std::array<std::string_view, 12> kGenres{"drama",   "comedy",    "horror",      "crime",
                                                          "war",     "romance",   "fantasy",     "mystery",
                                                          "western", "adventure", "documentary", "thriller"};

}  // namespace qtrain::cypher
