/** Buttons of the company sign-in, one for each provider. */
import { ErrorMessage, useAction } from '../parts/form.tsx';
import { type PendingSignIn, beginProviderSignIn, providers } from '../session.ts';

export function ProviderButtons({ pending }: { pending: PendingSignIn }) {
  const action = useAction();
  if (providers.value.length === 0) return null;
  return (
    <div class="providers">
      {providers.value.map(({ id, label }) => (
        <button
          key={id}
          type="button"
          class="primary wide"
          disabled={action.isRunning}
          onClick={() => void action.run(() => beginProviderSignIn(id, pending))}
        >
          Continue with {label}
        </button>
      ))}
      <ErrorMessage error={action.error} />
    </div>
  );
}
