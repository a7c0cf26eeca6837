/** Explains why a database cannot be opened, and what to do. Never contains a password. */
import { accessSync, constants, statSync } from 'node:fs';
import { dirname, resolve } from 'node:path';
import { codeOf, diskFailure } from './failures.ts';

export function openProblem(error: unknown, databaseUrl: string): string | undefined {
  const errors = causesOf(error);
  if (databaseUrl.startsWith('sqlite:')) {
    const path = resolve(databaseUrl.slice('sqlite:'.length));
    for (const one of errors) {
      const failure = diskFailure(one);
      if (failure === undefined) continue;
      return `${failure.problem} (${path}): ${accessProblem(path) ?? failure.advice}`;
    }
    return undefined;
  }
  const place = placeOf(databaseUrl);
  const isUnreadable = errors.some((one) => codeOf(one) === 'ERR_INVALID_URL');
  if (place === undefined || isUnreadable) {
    return 'The database URL is invalid: set "database" to postgres://user:password@host:5432/name, with special characters of the password percent-encoded';
  }
  for (const one of errors) {
    const problem = serverProblem(codeOf(one), one, place);
    if (problem !== undefined) return problem;
  }
  return undefined;
}

/** Returns the error and its causes; there are several if a host name has several addresses. */
function causesOf(error: unknown): Error[] {
  if (!(error instanceof Error)) return [];
  const inner = error instanceof AggregateError ? error.errors.flatMap(causesOf) : [];
  return [error, ...causesOf(error.cause), ...inner];
}

interface Place {
  readonly server: string;
  readonly user: string;
  readonly database: string;
}

const ADDRESS =
  /^postgres(?:ql)?:\/\/(?:(?<login>[^/?]*)@)?(?<servers>[^/?]*)(?:\/(?<name>[^?]*))?/;

/** Returns `undefined` if the URL cannot be parsed, for example with a slash in the password. */
function placeOf(databaseUrl: string): Place | undefined {
  const { login = '', servers, name = '' } = ADDRESS.exec(databaseUrl)?.groups ?? {};
  if (servers === undefined) return undefined;
  const others = new URLSearchParams(databaseUrl.split('?')[1]);
  return {
    server: servers || (others.get('host') ?? 'localhost'),
    user: login.split(':')[0] || (others.get('user') ?? ''),
    database: name,
  };
}

function serverProblem(code: string, error: Error, place: Place): string | undefined {
  const { server, user, database } = place;
  const at = `PostgreSQL at ${server}`;
  const closed = `${at} does not accept connections: start it, or correct "database"`;
  if (error.message === 'Connection terminated unexpectedly') return closed;
  switch (code) {
    case 'ENOTFOUND':
    case 'EAI_AGAIN':
      return `The host name of ${at} has no address: correct "database"`;
    case 'ECONNREFUSED':
    case 'ECONNRESET':
    case 'ENOENT':
      return closed;
    case 'EHOSTUNREACH':
    case 'ENETUNREACH':
    case 'ETIMEDOUT':
      return `${at} is unreachable: check the network, or correct "database"`;
    case '28000':
    case '28P01':
      return `${at} rejects the user "${user}": correct the name or the password in "database" (${error.message})`;
    case '3D000':
      return `${at} has no database "${database}": create it ("createdb ${database}"), or correct "database"`;
    case '42501':
      return `${at} does not allow the user "${user}" to create tables in "${database}": make it the owner, or grant CREATE on the schema (${error.message})`;
    case '25006':
      return `${at} accepts no writes: set "database" to the primary, or turn its default_transaction_read_only off`;
    case '53300':
      return `${at} has no connection left: raise its max_connections, or lower "cluster.connections"`;
    default:
      return /timeout/i.test(error.message) && !code.startsWith('E')
        ? `${at} does not respond in time: check the network, or correct "database"`
        : undefined;
  }
}

/** Returns `undefined` if the file, or the folder in which it would be created, is accessible. */
export function accessProblem(path: string): string | undefined {
  for (const place of [path, dirname(path)]) {
    try {
      accessSync(place, constants.R_OK | constants.W_OK);
    } catch (error) {
      const code = codeOf(error);
      if (code === 'EROFS') return `${place} is on a read-only file system`;
      // A missing file is created in its folder.
      if (code === 'EACCES' || code === 'EPERM') return foreign(place);
    }
  }
  return undefined;
}

function foreign(place: string): string {
  const owner = ownerOf(place);
  const own = process.getuid?.();
  if (owner === undefined || owner === own) return `this user has no permission to write ${place}`;
  return `${place} belongs to user ${owner}, but this process runs as user ${own}: run the command as that user, or change the owner`;
}

/** Returns the user id of the owner, or that of the nearest accessible parent folder. */
function ownerOf(place: string): number | undefined {
  try {
    return statSync(place, { throwIfNoEntry: false })?.uid;
  } catch {
    // The folder is closed to this user.
    const parent = dirname(place);
    return parent === place ? undefined : ownerOf(parent);
  }
}
