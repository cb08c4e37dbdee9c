// The SQLite wrapper: what each fault becomes, and that bindings, resets and rollbacks happen.
#include "cache/sqlite.h"

#include "tests/cache/support.h"

namespace laya::cache {
namespace {

using test::RawDatabase;
using test::TempDirectory;

Connection open_with_table(const TempDirectory& temp) {
  auto connection = Connection::open(temp.database(), Connection::Access::kReadWrite);
  REQUIRE(connection);
  REQUIRE(connection->execute("CREATE TABLE t(a INTEGER UNIQUE, b BLOB) STRICT"));
  return *std::move(connection);
}

TEST_CASE("values are bound as they are, and empty is not NULL") {
  const TempDirectory temp;
  Connection connection = open_with_table(temp);
  const std::string bytes("\0'; --\xff", 7);
  REQUIRE(Query(connection, "INSERT INTO t VALUES(?1, ?2)", int64_t{-5}, Blob{bytes}).run());
  REQUIRE(Query(connection, "INSERT INTO t VALUES(?1, ?2)", int64_t{1} << 60, Blob{{}}).run());
  CHECK(*connection.integer("SELECT count(*) FROM t WHERE b IS NULL") == 0);
  Query query(connection, "SELECT a, b FROM t ORDER BY a");
  REQUIRE(*query.step());
  CHECK(query.integer(0) == -5);
  CHECK(query.blob(1) == bytes);
  REQUIRE(*query.step());
  CHECK(query.integer(0) == int64_t{1} << 60);
  CHECK(query.blob(1).empty());
  CHECK_FALSE(*query.step());
}

TEST_CASE("a statement is prepared once and can be run again after each query") {
  const TempDirectory temp;
  Connection connection = open_with_table(temp);
  static constexpr char kInsert[] = "INSERT INTO t VALUES(?1, NULL)";
  const auto first = connection.statement(kInsert);
  for (int64_t i = 0; i < 3; ++i) CHECK(Query(connection, kInsert, i).run());
  CHECK(*connection.statement(kInsert) == *first);
  CHECK(*connection.integer("SELECT count(*) FROM t") == 3);
  CHECK(Query(connection, "DELETE FROM t WHERE a > 0").run());
  CHECK(connection.changes() == 2);
}

TEST_CASE("each failure is of its kind and names the file") {
  const TempDirectory temp;
  Connection connection = open_with_table(temp);
  const auto wrong_sql = Query(connection, "SELECT a FROM nowhere").step();
  REQUIRE_FALSE(wrong_sql);
  CHECK(wrong_sql.error().fault == Fault::kDamaged);
  CHECK(wrong_sql.error().message.find(temp.database().string()) != std::string::npos);
  CAPTURE(wrong_sql.error().message);
  CHECK(wrong_sql.error().message.find("nowhere") != std::string::npos);

  CHECK(Query(connection, "INSERT INTO t VALUES(1, NULL)").run());
  CHECK(Query(connection, "INSERT INTO t VALUES(?1, NULL)", int64_t{1}).run().error().fault ==
        Fault::kInconsistent);
  CHECK(Query(connection, "SELECT 1").run().error().fault == Fault::kOther);
  CHECK(Query(connection, "SELECT ?1", int64_t{1}, int64_t{2}).step().error().fault ==
        Fault::kOther);
  CHECK(connection.integer("SELECT a FROM t WHERE a = 99").error().fault == Fault::kOther);

  RawDatabase writer(temp.database());
  writer.execute("BEGIN EXCLUSIVE");
  CHECK(connection.integer("SELECT a FROM t").error().fault == Fault::kBusy);
  CHECK(Transaction::begin(connection).error().fault == Fault::kBusy);
}

TEST_CASE("a full database is told apart") {
  const TempDirectory temp;
  Connection connection = open_with_table(temp);
  REQUIRE(connection.execute("PRAGMA max_page_count = 4"));
  const std::string large(100000, 'x');
  CHECK(Query(connection, "INSERT INTO t VALUES(1, ?1)", Blob{large}).run().error().fault ==
        Fault::kFull);
}

TEST_CASE("a transaction that is not committed did not happen") {
  const TempDirectory temp;
  Connection connection = open_with_table(temp);
  {
    auto transaction = Transaction::begin(connection);
    REQUIRE(transaction);
    REQUIRE(Query(connection, "INSERT INTO t VALUES(1, NULL)").run());
  }
  CHECK(*connection.integer("SELECT count(*) FROM t") == 0);
  {
    auto transaction = Transaction::begin(connection);
    REQUIRE(transaction);
    REQUIRE(Query(connection, "INSERT INTO t VALUES(1, NULL)").run());
    REQUIRE(transaction->commit());
  }
  CHECK(*connection.integer("SELECT count(*) FROM t") == 1);
}

TEST_CASE("a connection knows when its file is another one now") {
  const TempDirectory temp;
  Connection connection = open_with_table(temp);
  CHECK_FALSE(connection.has_moved());
  std::filesystem::rename(temp.database(), temp.path() / "elsewhere");
  CHECK(connection.has_moved());
  test::write_file(temp.database(), "another file");
  CHECK(connection.has_moved());
}

TEST_CASE("links in the path are refused, missing files only made when writing") {
  const TempDirectory temp;
  CHECK_FALSE(Connection::open(temp.database(), Connection::Access::kReadOnly));
  CHECK_FALSE(Connection::open(temp.database(), Connection::Access::kImmutable));
  {
    open_with_table(temp);
  }
  const auto link = temp.path() / "link";
  std::filesystem::create_symlink(temp.database(), link);
  const auto refused = Connection::open(link, Connection::Access::kReadWrite);
  REQUIRE_FALSE(refused);
  CHECK(refused.error().message.find(link.string()) != std::string::npos);
}

TEST_CASE("an immutable connection finds its file under any name") {
  for (const std::string name : {"a b'ü日本?#%", "%41", "x?immutable=0", "a&b=c"}) {
    CAPTURE(name);
    const TempDirectory temp(name);
    std::filesystem::create_directories(temp.path());
    {
      open_with_table(temp);
    }
    auto connection = Connection::open(temp.database(), Connection::Access::kImmutable);
    REQUIRE(connection);
    CHECK(*connection->integer("SELECT count(*) FROM t") == 0);
    CHECK_FALSE(connection->execute("DROP TABLE t"));
  }
}

}  // namespace
}  // namespace laya::cache
