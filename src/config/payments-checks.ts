/** Checks across the settings of payments: rails that could not settle, networks, amounts and addresses. */
import { isWithoutChecksum, walletIdentity } from '../core/addresses.ts';
import { evmNetwork } from '../core/evm-networks.ts';
import type { Diagnostics } from './explain.ts';
import type { PaymentsSection } from './payments-section.ts';
import type { Path } from './yaml-source.ts';

export function checkPayments(payments: PaymentsSection, diagnostics: Diagnostics): void {
  const { solana, staking, facilitator } = payments;
  checkAmounts(payments, diagnostics);
  checkNetworks(payments, diagnostics);
  if (solana !== undefined && solana.feePayerKey === undefined && facilitator.url === undefined) {
    diagnostics.problem(
      ['payments', 'solana'],
      'Needs a "feePayerKey" that pays for settlements, or a facilitator in "payments.facilitator.url"',
    );
  }
  if (facilitator.cdp !== undefined && facilitator.url === undefined) {
    diagnostics.problem(
      ['payments', 'facilitator', 'cdp'],
      'Needs "url", the URL of the facilitator',
    );
  }
  const evm = evmRails(payments);
  for (const [path, rail] of evm) {
    if (rail.upto && (rail.gasKey === undefined || facilitator.url !== undefined)) {
      diagnostics.problem(
        [...path, 'upto'],
        'Needs a "gasKey", and no "payments.facilitator.url", because only this server can settle such payments',
      );
    }
    checkSpelling([...path, 'payTo'], rail.payTo, diagnostics);
    checkSpelling([...path, 'asset'], rail.asset, diagnostics);
  }
  const all = solana === undefined ? evm : [...evm, [['payments', 'solana'], solana] as const];
  for (const [path, rail] of all) {
    if (rail.asset === undefined) continue;
    if (walletIdentity(rail.asset) !== walletIdentity(rail.payTo)) continue;
    diagnostics.problem(
      [...path, 'payTo'],
      'Must be the wallet that receives payments, not the token',
    );
  }
  checkSpelling(['payments', 'staking', 'contract'], staking?.contract, diagnostics);
}

type EvmRail = PaymentsSection['networks'][number] | NonNullable<PaymentsSection['base']>;

function evmRails({ base, networks }: PaymentsSection): (readonly [Path, EvmRail])[] {
  const further = networks.map((rail, index) => [['payments', 'networks', index], rail] as const);
  return base === undefined ? further : [[['payments', 'base'], base], ...further];
}

/** Bytes of `PAYMENT-REQUIRED` without networks, and for each of them, in its shortest form. */
const HEADER_BYTES = 900;
const NETWORK_BYTES = 500;

function checkNetworks(payments: PaymentsSection, diagnostics: Diagnostics): void {
  const { base, solana, networks, maximumTopUpUsd, requiredHeaderBytes } = payments;
  const used = new Set<string>(base === undefined ? [] : [base.network]);
  for (const [index, rail] of networks.entries()) {
    const problem = (name: string, message: string): void =>
      diagnostics.problem(['payments', 'networks', index, name], message);
    const { network, asset, domain, minimumTopUpUsd = 0 } = rail;
    if (used.has(network)) problem('network', `"${network}" is configured twice`);
    used.add(network);
    if (asset === undefined && evmNetwork(network) === undefined) {
      problem('network', `"${network}" is not built in: set "asset", its token with 6 decimals`);
    }
    if (domain === undefined && (asset !== undefined || evmNetwork(network) === undefined)) {
      problem('network', 'Needs "domain", the EIP-712 domain of the token in "asset"');
    }
    if (minimumTopUpUsd > maximumTopUpUsd) {
      const message = `Must be at most maximumTopUpUsd, which is ${maximumTopUpUsd}`;
      problem('minimumTopUpUsd', message);
    }
  }
  const count = used.size + (solana === undefined ? 0 : 1);
  const neededBytes = HEADER_BYTES + count * NETWORK_BYTES;
  if (networks.length > 0 && neededBytes > requiredHeaderBytes) {
    diagnostics.warning(
      ['payments', 'networks'],
      `The header of a 402 has about ${neededBytes} bytes with ${count} networks, more than requiredHeaderBytes (${requiredHeaderBytes}): the last networks are in its body only`,
    );
  }
}

function checkAmounts(payments: PaymentsSection, diagnostics: Diagnostics): void {
  const { minimumTopUpUsd: least, suggestedTopUpUsd: usual, maximumTopUpUsd: most } = payments;
  if (least > usual) {
    const message = `Must be at most suggestedTopUpUsd, which is ${usual}, not ${least}`;
    diagnostics.problem(['payments', 'minimumTopUpUsd'], message);
  }
  if (usual > most) {
    const message = `Must be at least suggestedTopUpUsd, which is ${usual}, not ${most}`;
    diagnostics.problem(['payments', 'maximumTopUpUsd'], message);
  }
}

/** EIP-55 is optional: an address without a checksum is valid, but typing errors go unnoticed. */
function checkSpelling(path: Path, address: string | undefined, diagnostics: Diagnostics): void {
  if (address === undefined || !isWithoutChecksum(address)) return;
  const message =
    'The address has no checksum, so a typing error cannot be detected; write it with the capital letters that the wallet shows';
  diagnostics.warning(path, message);
}
