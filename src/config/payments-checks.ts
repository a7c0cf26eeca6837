/**
 * What no single key of the payments section can say: amounts in an impossible order, rails that
 * cannot be opened, a receiver that is its own token, addresses whose typing errors nobody can see.
 */
import { isWithoutChecksum, walletIdentity } from '../core/addresses.ts';
import type { Findings } from './cross-checks.ts';
import type { PaymentsSection } from './payments-section.ts';
import type { Path } from './yaml-source.ts';

export function checkPayments(payments: PaymentsSection, findings: Findings): void {
  const { base, solana, staking, facilitator } = payments;
  checkAmounts(payments, findings);
  if (solana !== undefined && solana.feePayerKey === undefined && facilitator.url === undefined) {
    findings.problem(
      ['payments', 'solana'],
      'Needs a "feePayerKey" that pays for settlements, or "payments.facilitator.url" of a facilitator that does',
    );
  }
  for (const [name, rail] of Object.entries({ base, solana })) {
    if (rail?.asset === undefined) continue;
    if (walletIdentity(rail.asset) !== walletIdentity(rail.payTo)) continue;
    findings.problem(
      ['payments', name, 'payTo'],
      'Is the token itself; name the wallet that is paid',
    );
  }
  checkSpelling(['payments', 'base', 'payTo'], base?.payTo, findings);
  checkSpelling(['payments', 'base', 'asset'], base?.asset, findings);
  checkSpelling(['payments', 'staking', 'contract'], staking?.contract, findings);
}

function checkAmounts(payments: PaymentsSection, findings: Findings): void {
  const { minimumTopUpUsd: least, suggestedTopUpUsd: usual, maximumTopUpUsd: most } = payments;
  if (least > usual) {
    const message = `Must be at most suggestedTopUpUsd, which is ${usual}, not ${least}`;
    findings.problem(['payments', 'minimumTopUpUsd'], message);
  }
  if (usual > most) {
    const message = `Must be at least suggestedTopUpUsd, which is ${usual}, not ${most}`;
    findings.problem(['payments', 'maximumTopUpUsd'], message);
  }
}

/** EIP-55 is optional, so a spelling without it is taken; it just cannot be proven right. */
function checkSpelling(path: Path, address: string | undefined, findings: Findings): void {
  if (address === undefined || !isWithoutChecksum(address)) return;
  const message =
    'The address has no checksum, so a typing error in it cannot be seen; write it with the capital letters that the wallet shows';
  findings.warning(path, message);
}
