/** A store that loses replies, as a network does. */
import { type Store, StoreUnavailable } from '../../src/db/db.ts';

/** A store that loses the reply of a statement with the given text, or of a transaction after its commit. */
export function lossy<S extends Store>(
  store: S,
): { readonly store: S; readonly lose: (text: string) => void } {
  let lost: string | undefined;
  const losing = new Proxy(store, {
    get: (target, name) => {
      const value: unknown = Reflect.get(target, name, target);
      if (typeof value !== 'function') return value;
      const method = value.bind(target) as (...parameters: unknown[]) => Promise<unknown>;
      if (name === 'transaction') {
        return async (...parameters: unknown[]) => {
          const answer = await method(...parameters);
          if (lost !== 'transaction') return answer;
          lost = undefined;
          throw new StoreUnavailable('The reply was lost');
        };
      }
      if (name !== 'query') return method;
      return async (sql: string, ...rest: unknown[]) => {
        const answer = await method(sql, ...rest);
        if (lost === undefined || !sql.includes(lost)) return answer;
        lost = undefined;
        throw new StoreUnavailable('The reply was lost');
      };
    },
  });
  return { store: losing, lose: (text) => void (lost = text) };
}
