/** Settings that the server writes into the document: names, base path and payment rails. */

export type Rail = 'base' | 'solana';

const {
  title = 'Farebox',
  service = 'svc',
  base = '/api/v1',
  rails = '',
} = document.documentElement.dataset;

export const TITLE = title;
/** Prefix of the service's own headers is `x-<name>-`. */
export const SERVICE = service;
/** Base path of the API, without a slash at its end. */
export const BASE = base;
export const API_URL = location.origin + base;
export const RAILS: readonly Rail[] = rails
  .split(' ')
  .filter((rail): rail is Rail => rail === 'base' || rail === 'solana');
