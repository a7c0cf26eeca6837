/** Explains why a database cannot be opened, and what to do. Never contains a password. */
import { resolve } from 'node:path';
import { accessProblem } from './access-problem.ts';
import { codeOf, diskFailure } from './failures.ts';

/** Returns `undefined` for an error unrelated to the database. */
export function openProblem(error: unknown, databaseUrl: string): string | undefined {
  const errors = causesOf(error);
  if (databaseUrl.startsWith('sqlite:')) {
    const path = resolve(databaseUrl.slice('sqlite:'.length));
    for (const one of errors) {
      const failure = diskFailure(one);
      if (failure === undefined) continue;
      return `${failure.told} (${path}): ${accessProblem(path) ?? failure.advice}`;
    }
    return undefined;
  }
  const place = placeOf(databaseUrl);
  const isUnreadable = errors.some((one) => codeOf(one) === 'ERR_INVALID_URL');
  if (place === undefined || isUnreadable) {
    return 'The address of the database cannot be read: write postgres://user:password@host:5432/name as "database", special characters of the password percent-encoded';
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

const ADDRESS = /^postgres(?:ql)?:\/\/(?:(?<who>[^/?]*)@)?(?<servers>[^/?]*)(?:\/(?<name>[^?]*))?/;

/** Returns `undefined` if the URL cannot be parsed, for example with a slash in the password. */
function placeOf(databaseUrl: string): Place | undefined {
  const { who = '', servers, name = '' } = ADDRESS.exec(databaseUrl)?.groups ?? {};
  if (servers === undefined) return undefined;
  const others = new URLSearchParams(databaseUrl.split('?')[1]);
  return {
    server: servers || (others.get('host') ?? 'localhost'),
    user: who.split(':')[0] || (others.get('user') ?? ''),
    database: name,
  };
}

function serverProblem(code: string, error: Error, place: Place): string | undefined {
  const { server, user, database } = place;
  const at = `PostgreSQL at ${server}`;
  switch (code) {
    case 'ENOTFOUND':
    case 'EAI_AGAIN':
      return `There is no address for the name of ${at}: correct "database"`;
    case 'ECONNREFUSED':
    case 'ENOENT':
      return `No ${at} takes connections: start it, or correct "database"`;
    case 'EHOSTUNREACH':
    case 'ENETUNREACH':
    case 'ETIMEDOUT':
      return `${at} cannot be reached: look at the network, or correct "database"`;
    case '28000':
    case '28P01':
      return `${at} does not let the user "${user}" in: correct the name or the password in "database" (${error.message})`;
    case '3D000':
      return `${at} has no database "${database}": make it ("createdb ${database}"), or correct "database"`;
    case '42501':
      return `${at} does not let the user "${user}" make tables in "${database}": make it the owner, or grant CREATE on the schema (${error.message})`;
    case '53300':
      return `${at} has no connection left: raise its max_connections, or lower "cluster.connections"`;
    default:
      return /timeout/i.test(error.message) && !code.startsWith('E')
        ? `${at} does not answer in time: look at the network, or correct "database"`
        : undefined;
  }
}
