/**
 * The servers that a database address names. `postgres://user@first:5432,second:5432/name` lists a
 * primary and its standbys: whichever is writable is used, and after a failover the other one is.
 */

const ADDRESS = /^(postgres(?:ql)?:\/\/(?:[^@/?]*@)?)([^/?]*)([/?].*)?$/;

/** One address for each listed server, in the order written; at least one. */
export function serversOf(url: string): readonly string[] {
  const [, head, hosts, tail] = ADDRESS.exec(url) ?? [];
  if (head === undefined || hosts === undefined || !hosts.includes(',')) return [url];
  return hosts.split(',').map((host) => `${head}${host}${tail ?? ''}`);
}
