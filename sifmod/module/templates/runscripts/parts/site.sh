{% if runscript_env %}

# The site's and the easyconfig's variables.
{% for name, value in runscript_env %}
default {{ name }} {{ value | shell }}
{% endfor %}
{% endif %}
