/** The target of an HTTP request in its parts. */

/**
 * The path of an HTTP request's target as the router reads it: without query and fragment, and of a
 * whole address (RFC 9112 §3.2.2) what follows its host.
 */
export function targetPath(target: string | undefined): string {
  const [path = ''] = (target ?? '').split(/[?#]/, 1);
  return path.startsWith('/') ? path : path.replace(/^https?:\/\/[^/]*/i, '');
}

/** What stands behind the question mark; empty when there is none. */
export function targetQuery(target: string | undefined): string {
  const at = target?.indexOf('?') ?? -1;
  return at < 0 ? '' : (target ?? '').slice(at + 1);
}
