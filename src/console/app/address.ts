/** The state of a page in the query of its address: filters, and the id of the item in the drawer. */
import { useLocation } from 'preact-iso';
import { query } from './api.ts';

export interface Address<Name extends string> {
  /** Empty text for a filter that is not set. */
  readonly filters: Readonly<Record<Name, string>>;
  /** The filters as `?a=1&b=2`; empty if none is set. */
  readonly search: string;
  readonly isFiltered: boolean;
  readonly open: string | undefined;
  readonly change: (changes: Partial<Record<Name, string>>) => void;
  readonly clear: () => void;
  readonly show: (id: string) => void;
  readonly close: () => void;
}

export function useAddress<Name extends string = never>(...names: readonly Name[]): Address<Name> {
  const { query: given, path, route } = useLocation();
  const filters = Object.fromEntries(names.map((name) => [name, given[name] ?? ''])) as Record<
    Name,
    string
  >; // one entry per name
  const search = query(filters);
  return {
    filters,
    search,
    isFiltered: search !== '',
    open: given['open'],
    change: (changes) => route(path + query({ ...filters, ...changes })),
    clear: () => route(path),
    show: (id) => route(path + query({ ...filters, open: id })),
    close: () => route(path + search, true),
  };
}
