# bash completion for purelbd
_purelbd() {
    local flags='--config --check-config --withdraw --node-name --set --help --version'
    case ${COMP_WORDS[COMP_CWORD - 1]} in
    --config) mapfile -t COMPREPLY < <(compgen -f -- "${COMP_WORDS[COMP_CWORD]}") ;;
    --node-name | --set) COMPREPLY=() ;;
    *) mapfile -t COMPREPLY < <(compgen -W "$flags" -- "${COMP_WORDS[COMP_CWORD]}") ;;
    esac
}
complete -F _purelbd purelbd
