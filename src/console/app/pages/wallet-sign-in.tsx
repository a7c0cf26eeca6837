/** Sign-in with a wallet of this browser. Loads the wallet code on demand. */
import { useSignal } from '@preact/signals';
import { RAILS, RAIL_NAMES } from '../page-facts.ts';
import { ErrorMessage, useAction } from '../parts/form.tsx';
import { signInByWallet, signInChallenge } from '../session.ts';
import type { ConnectedWallet, WalletChoice } from '../wallets/wallet.ts';
import { WalletList } from './wallet-list.tsx';

export function WalletSignIn({ signedIn }: { signedIn: () => void }) {
  const isOpen = useSignal(false);
  const action = useAction();
  const signIn = async (wallet: ConnectedWallet): Promise<void> => {
    const [challenge, { signInHeader }] = await Promise.all([
      signInChallenge(),
      import('../wallets/sign-in.ts'),
    ]);
    if (challenge === null) throw new Error('This service does not support wallets');
    await signInByWallet(await signInHeader(wallet, challenge));
  };
  const choose = async (choice: WalletChoice): Promise<void> => {
    if (await action.run(async () => signIn(await choice.connect()))) signedIn();
  };
  return (
    <section class="by-wallet">
      <p class="or">
        <span>or</span>
      </p>
      {isOpen.value ? (
        <WalletList isBusy={action.isRunning} choose={(choice) => void choose(choice)} />
      ) : (
        <button type="button" class="wide" onClick={() => (isOpen.value = true)}>
          Sign in with a wallet
        </button>
      )}
      {action.isRunning && <p role="status">Waiting for your wallet…</p>}
      <ErrorMessage error={action.error} />
      <p class="hint">
        A {RAILS.map((rail) => RAIL_NAMES[rail]).join(' or ')} wallet signs a message. This costs
        nothing and moves no money.
      </p>
    </section>
  );
}
