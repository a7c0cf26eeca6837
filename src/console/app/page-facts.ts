/** Settings that the server writes into the document: names, base path, payment rails and whether cards are taken. */
import { evmNetwork } from '../../core/evm-networks.ts';

/** A kind of wallet: `base` is each wallet of an EVM network. */
export type Rail = 'base' | 'solana';

const {
  title = 'Farebox',
  service = 'svc',
  base = '/api/v1',
  rails = '',
  cards = '',
  networks = '',
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
/** CAIP-2 ids of the EVM networks on which wallets can pay. */
const EVM_IDS = networks.split(' ').filter((id) => id !== '');
export const RAIL_NAMES: Readonly<Record<Rail, string>> = {
  base: EVM_IDS.length === 1 ? networkName(EVM_IDS[0] ?? '') : 'EVM',
  solana: 'Solana',
};

export function networkName(network: string): string {
  if (network.startsWith('solana:')) return 'Solana';
  return evmNetwork(network)?.name ?? network;
}

/** Whether a person can pay on the page of a payment provider. */
export const TAKES_CARDS = cards !== '';
