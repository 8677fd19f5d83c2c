#pragma once
#include <array>
#include <cstddef>
#include <string_view>

namespace qtrain::cypher {

/// One meaning: three ways to ask for it, and one query that answers it. `<slot>` stands for an entity or a value that
/// is copied from the question into the query; entities.h lists the slots.
struct Shape {
  std::array<std::string_view, 3> questions;
  std::string_view query;
  std::size_t share = 1;  ///< relative number of rows: higher if one word distinguishes two meanings
};

/// The graph: (:Person {name, born, city}), (:Film {title, year, genre, rating}), (:Company {name, city}),
/// (:Book {title, year, pages}); ACTED_IN and DIRECTED (person to film), WORKS_AT (person to company), WROTE (person to
/// book), PRODUCED (company to film), PUBLISHED (company to book), BASED_ON (film to book).
///
/// Every query is written the same way: the pattern along the arrows with what is known of a node next to its label,
/// then WHERE for comparisons, then what is asked for.
inline constexpr auto kShapes = std::to_array<Shape>({
    // One relation, asked for from either end.
    {{"Who acted in the film <film>?", "List the people who acted in the film <film>.",
      "Which actors are in the film <film>?"},
     "MATCH (p:Person)-[:ACTED_IN]->(f:Film {title: '<film>'}) RETURN p.name"},
    {{"Which films did <person> act in?", "List the films that <person> acted in.", "In which films did <person> act?"},
     "MATCH (p:Person {name: '<person>'})-[:ACTED_IN]->(f:Film) RETURN f.title"},
    {{"Who directed the film <film>?", "List the people who directed the film <film>.",
      "Who is the director of the film <film>?"},
     "MATCH (p:Person)-[:DIRECTED]->(f:Film {title: '<film>'}) RETURN p.name"},
    {{"Which films did <person> direct?", "List the films that <person> directed.",
      "Which films were directed by <person>?"},
     "MATCH (p:Person {name: '<person>'})-[:DIRECTED]->(f:Film) RETURN f.title"},
    {{"Who wrote the book <book>?", "List the people who wrote the book <book>.",
      "Who is the writer of the book <book>?"},
     "MATCH (p:Person)-[:WROTE]->(b:Book {title: '<book>'}) RETURN p.name"},
    {{"Which books did <person> write?", "List the books that <person> wrote.",
      "Which books were written by <person>?"},
     "MATCH (p:Person {name: '<person>'})-[:WROTE]->(b:Book) RETURN b.title"},
    {{"Who works at <company>?", "List the people who work at <company>.",
      "Which people work at the company <company>?"},
     "MATCH (p:Person)-[:WORKS_AT]->(c:Company {name: '<company>'}) RETURN p.name"},
    {{"Where does <person> work?", "At which company does <person> work?", "Which company does <person> work at?"},
     "MATCH (p:Person {name: '<person>'})-[:WORKS_AT]->(c:Company) RETURN c.name"},
    {{"Which company produced the film <film>?", "By which company was the film <film> produced?",
      "Which company is the producer of the film <film>?"},
     "MATCH (c:Company)-[:PRODUCED]->(f:Film {title: '<film>'}) RETURN c.name"},
    {{"Which films did <company> produce?", "List the films that <company> produced.",
      "Which films were produced by <company>?"},
     "MATCH (c:Company {name: '<company>'})-[:PRODUCED]->(f:Film) RETURN f.title"},
    {{"Which company published the book <book>?", "By which company was the book <book> published?",
      "Which company is the publisher of the book <book>?"},
     "MATCH (c:Company)-[:PUBLISHED]->(b:Book {title: '<book>'}) RETURN c.name"},
    {{"Which books did <company> publish?", "List the books that <company> published.",
      "Which books were published by <company>?"},
     "MATCH (c:Company {name: '<company>'})-[:PUBLISHED]->(b:Book) RETURN b.title"},
    {{"Which book is the film <film> based on?", "On which book is the film <film> based?",
      "What is the book that the film <film> is based on?"},
     "MATCH (f:Film {title: '<film>'})-[:BASED_ON]->(b:Book) RETURN b.title"},
    {{"Which films are based on the book <book>?", "List the films that are based on the book <book>.",
      "Which films were based on the book <book>?"},
     "MATCH (f:Film)-[:BASED_ON]->(b:Book {title: '<book>'}) RETURN f.title"},
    // A property of one node.
    {{"When was the film <film> released?", "In which year was the film <film> released?",
      "What is the release year of the film <film>?"},
     "MATCH (f:Film {title: '<film>'}) RETURN f.year"},
    {{"What is the rating of the film <film>?", "How is the film <film> rated?", "Show the rating of the film <film>."},
     "MATCH (f:Film {title: '<film>'}) RETURN f.rating"},
    {{"How many pages does the book <book> have?", "What is the number of pages of the book <book>?",
      "Show the pages of the book <book>."},
     "MATCH (b:Book {title: '<book>'}) RETURN b.pages"},
    {{"When was <person> born?", "In which year was <person> born?", "What is the birth year of <person>?"},
     "MATCH (p:Person {name: '<person>'}) RETURN p.born"},
    {{"In which city is the company <company>?", "What is the city of the company <company>?",
      "Which city is the company <company> in?"},
     "MATCH (c:Company {name: '<company>'}) RETURN c.city"},
    // Filters.
    {{"Which <genre> films were released in <year>?", "List the <genre> films released in <year>.",
      "Show <genre> films from the year <year>."},
     "MATCH (f:Film {genre: '<genre>', year: <year>}) RETURN f.title",
     4},
    {{"Which <genre> films were released <side> <year>?", "List the <genre> films released <side> <year>.",
      "Show <genre> films from <side> <year>."},
     "MATCH (f:Film {genre: '<genre>'}) WHERE f.year <sign> <year> RETURN f.title",
     3},
    {{"Which <genre> films have a rating above <rating>?", "List the <genre> films rated above <rating>.",
      "Show <genre> films with a rating above <rating>."},
     "MATCH (f:Film {genre: '<genre>'}) WHERE f.rating > <rating> RETURN f.title"},
    {{"Which books have more than <pages> pages?", "List the books with more than <pages> pages.",
      "Show books of more than <pages> pages."},
     "MATCH (b:Book) WHERE b.pages > <pages> RETURN b.title"},
    {{"Which people in <city> were born <side> <year>?", "List the people in <city> born <side> <year>.",
      "Show people from <city> who were born <side> <year>."},
     "MATCH (p:Person {city: '<city>'}) WHERE p.born <sign> <year> RETURN p.name",
     2},
    {{"Which films did <person> act in <side> <year>?", "List the films that <person> acted in <side> <year>.",
      "In which films did <person> act <side> <year>?"},
     "MATCH (p:Person {name: '<person>'})-[:ACTED_IN]->(f:Film) WHERE f.year <sign> <year> RETURN f.title",
     2},
    {{"Which books did <person> write <side> <year>?", "List the books that <person> wrote <side> <year>.",
      "Which books were written by <person> <side> <year>?"},
     "MATCH (p:Person {name: '<person>'})-[:WROTE]->(b:Book) WHERE b.year <sign> <year> RETURN b.title",
     2},
    // Aggregates.
    {{"How many films did <person> act in?", "Count the films that <person> acted in.",
      "In how many films did <person> act?"},
     "MATCH (p:Person {name: '<person>'})-[:ACTED_IN]->(f:Film) RETURN count(f)"},
    {{"How many books did <person> write?", "Count the books that <person> wrote.",
      "How many books were written by <person>?"},
     "MATCH (p:Person {name: '<person>'})-[:WROTE]->(b:Book) RETURN count(b)"},
    {{"How many films did <company> produce?", "Count the films that <company> produced.",
      "How many films were produced by <company>?"},
     "MATCH (c:Company {name: '<company>'})-[:PRODUCED]->(f:Film) RETURN count(f)"},
    {{"How many people work at <company>?", "Count the people who work at <company>.",
      "How many people work at the company <company>?"},
     "MATCH (p:Person)-[:WORKS_AT]->(c:Company {name: '<company>'}) RETURN count(p)"},
    {{"What is the average rating of the films that <person> directed?",
      "Show the average rating of films directed by <person>.",
      "What is the average rating of films directed by <person>?"},
     "MATCH (p:Person {name: '<person>'})-[:DIRECTED]->(f:Film) RETURN avg(f.rating)"},
    // Ordering and limits.
    {{"What are the <n> best rated <genre> films?", "List the <n> best rated <genre> films.",
      "Show the <n> <genre> films rated best."},
     "MATCH (f:Film {genre: '<genre>'}) RETURN f.title ORDER BY f.rating DESC LIMIT <n>"},
    {{"What are the <n> longest books that <person> wrote?", "List the <n> longest books that <person> wrote.",
      "Show the <n> longest books written by <person>."},
     "MATCH (p:Person {name: '<person>'})-[:WROTE]->(b:Book) RETURN b.title ORDER BY b.pages DESC LIMIT <n>"},
    {{"What is the latest film that <person> directed?", "Show the latest film directed by <person>.",
      "Which is the latest film directed by <person>?"},
     "MATCH (p:Person {name: '<person>'})-[:DIRECTED]->(f:Film) RETURN f.title ORDER BY f.year DESC LIMIT 1",
     2},
    {{"List the films that <company> produced, ordered by year.",
      "Show the films produced by <company>, ordered by year.", "Which films did <company> produce, ordered by year?"},
     "MATCH (c:Company {name: '<company>'})-[:PRODUCED]->(f:Film) RETURN f.title ORDER BY f.year",
     2},
    // Two relations.
    {{"Who acted in films based on the book <book>?", "List the people who acted in films based on the book <book>.",
      "Which actors are in films based on the book <book>?"},
     "MATCH (p:Person)-[:ACTED_IN]->(f:Film)-[:BASED_ON]->(b:Book {title: '<book>'}) RETURN p.name"},
    {{"Who directed films based on the book <book>?", "List the people who directed films based on the book <book>.",
      "Which directors made films based on the book <book>?"},
     "MATCH (p:Person)-[:DIRECTED]->(f:Film)-[:BASED_ON]->(b:Book {title: '<book>'}) RETURN p.name"},
});

}  // namespace qtrain::cypher
