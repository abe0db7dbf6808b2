-- name: commit
-- whoever commits, those who wait for it are told
CREATE OR REPLACE TRIGGER lakemill_commit AFTER INSERT ON ducklake_snapshot
FOR EACH STATEMENT EXECUTE FUNCTION lakemill.tell_commit();
