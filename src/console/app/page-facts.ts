/** Settings that the server writes into the document: names, base path, payment rails and whether cards are taken. */

export type Rail = 'base' | 'solana';

const {
  title = 'Farebox',
  service = 'svc',
  base = '/api/v1',
  rails = '',
  cards = '',
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
/** Whether a person can pay on the page of a payment provider. */
export const TAKES_CARDS = cards !== '';
